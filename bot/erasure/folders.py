"""Forgets what requests wrote into folders of their own, and their copies of projects."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

from bot.tooling.files import place_of, work_of

log = logging.getLogger(__name__)


def forget_folders(data_dir: Path | None, runs: Iterable[str]) -> None:
    """Delete the folders of these runs that lie on this machine; None = there are none."""
    for folder in (work_of(data_dir) / place_of(run) for run in runs) if data_dir else ():
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("%s could not be deleted (%s): delete it by hand.", folder, error.strerror)
