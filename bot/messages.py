"""What is said in place of an answer: one short human sentence each."""

STOPPED_EARLY = "Stopped before I had begun, as you asked."
FAILED = "Something went wrong on my side, and I could not answer this."
CRASHED = "I tried to answer this several times and failed each time, so I gave it up."
DOWN = "The model provider does not answer at the moment. I will answer here when it is back."
GIVEN_UP = "The model provider has not answered for too long, so I gave this up. Please ask again."
SENT_IN_PRIVATE = (
    "I have sent you the answer in a direct message: not everyone here may read what it rests on."
)
HELD_BACK = "I cannot show the answer here: not everyone here may read what it rests on."
NOT_CONNECTED = (
    "No mailbox of yours is connected. Open my App Home and choose *Connect Gmail*; "
    "then ask me again."
)
