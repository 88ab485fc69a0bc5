"""What a statement may use of its database: functions, and views of the catalog."""

from __future__ import annotations

from typing import Final

REFUSED: Final = "Only one SELECT may be run at a time, and nothing else."
MACHINE: Final = (
    "What tells of the machine, its settings, other people's queries, or how views are made "
    "cannot be used here; list_tables, describe_table and information_schema.tables and .columns "
    "tell what data there is."
)
INFORMATION_SCHEMA: Final = frozenset(
    """columns constraint_column_usage key_column_usage referential_constraints schemata
    table_constraints tables""".split()
)
"""Its views that tell of the data; the others hold texts of views and checks, or name roles."""
DUCKDB_VIEWS: Final = frozenset(
    "duckdb_columns duckdb_constraints duckdb_schemas duckdb_tables duckdb_types".split()
)
"""The same of DuckDB's own; the texts of views and indexes may name files."""
DUCKDB_TABLE_FUNCTIONS: Final = frozenset(
    "range generate_series unnest repeat repeat_row json_each json_tree summary".split()
)
"""All others of DuckDB read files, tell of the machine, or take the name of a table as a text, in
which nobody sees what it is: `histogram('duckdb_' || 'databases', path)`."""
DUCKDB_HIDDEN: Final = frozenset("current_setting getenv pg_get_viewdef".split())
"""The only functions of DuckDB for a value that tell of settings, or of what a view is made of."""

_COMMON: Final = """
abs acos acosh all any array array_agg array_length array_to_string array_reverse asin asinh atan
atan2 atanh avg bit_and bit_count bit_or bit_xor case cast cbrt ceil ceiling coalesce concat corr
cos cosh cot count covar_pop covar_samp cume_dist current_date current_time current_timestamp date
date_part date_trunc datetime decode degrees dense_rank div every exists exp extract first_value
floor format generate_series generate_uuid greatest grouping if ifnull initcap interval json_array
json_object json_query json_value lag last_value lead least left length like ln log log10 lower
lpad ltrim max md5 min mod normalize nth_value ntile nullif numeric octet_length overlay
percent_rank percentile_cont percentile_disc pi position pow power radians rank regexp_instr
regexp_replace regexp_substr repeat replace reverse right round row row_number rpad rtrim sha256
sha512 sign sin sinh some soundex split_part sqrt stddev stddev_pop stddev_samp string_agg strpos
substr substring sum tan tanh time timestamp to_hex to_json translate trim trunc unnest upper
values var_pop var_samp variance"""
POSTGRESQL: Final = frozenset(
    (
        _COMMON
        + """
acosd age area array_append array_cat array_dims array_fill array_lower array_ndims array_position
array_positions array_prepend array_remove array_replace array_sample array_shuffle array_sort
array_to_json array_upper ascii asind atan2d atand bit_length bool_and bool_or bound_box box
broadcast btrim cardinality center char_length character_length chr circle clock_timestamp
col_description concat_ws convert convert_from convert_to cosd cotd current_catalog
current_database current_role current_schema current_schemas current_user date_add date_bin
date_subtract daterange datemultirange decode diagonal diameter encode enum_first enum_last
enum_range erf erfc factorial family format_type gamma gcd gen_random_uuid generate_subscripts
get_bit get_byte height host hostmask inet_merge inet_same_family int4range int4multirange
int8range int8multirange isclosed isempty isfinite isopen json_agg json_array_elements
json_array_elements_text json_array_length json_arrayagg json_build_array json_build_object
json_each json_each_text json_exists json_extract_path json_extract_path_text json_object_agg
json_object_keys json_objectagg json_populate_record json_populate_recordset json_scalar
json_serialize json_strip_nulls json_table json_to_record json_to_recordset json_typeof jsonb_agg
jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array
jsonb_build_object jsonb_each jsonb_each_text jsonb_exists jsonb_exists_all jsonb_exists_any
jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg
jsonb_object_keys jsonb_path_exists jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz
jsonb_path_query jsonb_path_query_array jsonb_path_query_array_tz jsonb_path_query_first
jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record jsonb_populate_recordset
jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset
jsonb_typeof justify_days justify_hours justify_interval lcm line localtime localtimestamp
lower_inc lower_inf lseg macaddr8_set7bit make_date make_interval make_time make_timestamp
make_timestamptz masklen merge_action min_scale mode multirange netmask network now npoints
num_nonnulls num_nulls numnode nummultirange numrange obj_description parse_ident path pclose
pg_column_size pg_indexes_size pg_relation_size pg_size_bytes pg_size_pretty pg_table_size
pg_total_relation_size pg_typeof phraseto_tsquery plainto_tsquery point polygon popen querytree
quote_ident quote_literal quote_nullable radius random random_normal range_agg
range_intersect_agg range_merge regexp_count regexp_like regexp_match regexp_matches
regexp_split_to_array regexp_split_to_table regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy row_to_json scale session_user set_bit set_byte set_masklen
setseed setweight sha1 sha224 sha384 sind slope starts_with statement_timestamp string_to_array
string_to_table strip tand text timeofday timestamptz timetz timezone to_ascii to_bin to_char
to_date to_jsonb to_number to_oct to_regclass to_regtype to_timestamp to_tsquery to_tsvector
transaction_timestamp trim_array trim_scale ts_headline ts_rank ts_rank_cd tsmultirange
tsquery_phrase tsrange tstzmultirange tstzrange tsvector_to_array unicode_assigned unistr
upper_inc upper_inf user uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 variadic
websearch_to_tsquery width width_bucket xmlagg xmlattributes xmlcomment xmlconcat xmlelement
xmlexists xmlforest xmlparse xmlserialize xmltable xpath xpath_exists
akeys avals defined delete difference digest dmetaphone dmetaphone_alt each exist hmac hstore
hstore_to_array hstore_to_json hstore_to_jsonb hstore_to_matrix levenshtein
levenshtein_less_equal metaphone normal_rand show_trgm similarity skeys slice
strict_word_similarity svals text_soundex unaccent uuid_generate_v1 uuid_generate_v4
uuid_generate_v5 word_similarity
idx index lca nlevel subltree subpath text2ltree icount sort uniq
cosine_distance inner_product l1_distance l2_distance l2_normalize subvector vector_dims
vector_norm first histogram interpolate last locf time_bucket time_bucket_gapfill
geometrytype postgis_version st_area st_asewkt st_asgeojson st_astext st_azimuth st_boundary
st_buffer st_centroid st_closestpoint st_clusterdbscan st_clusterkmeans st_collect st_contains
st_convexhull st_coveredby st_covers st_crosses st_difference st_dimension st_disjoint
st_distance st_distancesphere st_distancespheroid st_dump st_dumppoints st_dwithin st_endpoint
st_envelope st_equals st_expand st_extent st_geogfromtext st_geohash st_geometryn
st_geometrytype st_geomfromgeojson st_geomfromtext st_intersection st_intersects st_isempty
st_issimple st_isvalid st_length st_linemerge st_lineinterpolatepoint st_linelocatepoint
st_linesubstring st_makeenvelope st_makeline st_makepoint st_makepolygon st_makevalid
st_maxdistance st_multi st_ndims st_npoints st_numgeometries st_numpoints st_overlaps
st_perimeter st_point st_pointn st_pointonsurface st_polygon st_project st_setsrid st_simplify
st_snap st_snaptogrid st_srid st_startpoint st_subdivide st_symdifference st_touches
st_transform st_translate st_union st_within st_x st_xmax st_xmin st_y st_ymax st_ymin st_z"""
    ).split()
)
"""Those of the server that only compute, then those of hstore, fuzzystrmatch, pg_trgm, unaccent,
pgcrypto, uuid-ossp, tablefunc, ltree, intarray, pgvector, timescaledb and PostGIS. Not among them:
what tells of the machine, reads files, waits, counts on, locks, or runs a text as SQL."""
BIGQUERY: Final = frozenset(
    (
        _COMMON
        + """
any_value appends approx_count_distinct approx_quantiles approx_top_count approx_top_sum
array_concat array_concat_agg array_filter array_first array_includes array_includes_all
array_includes_any array_is_distinct array_last array_max array_min array_slice array_sum
array_transform ascii bool byte_length char_length character_length chr code_points_to_bytes
code_points_to_string collate contains_substr cosine_distance countif csc csch coth sec sech
current_datetime date_add date_bucket date_diff date_from_unix_date date_sub datetime_add
datetime_bucket datetime_diff datetime_sub datetime_trunc edit_distance ends_with
euclidean_distance farm_fingerprint float64 format_date format_datetime format_time
format_timestamp from_base32 from_base64 from_hex gap_fill generate_array generate_date_array
generate_range_array generate_timestamp_array
hll_count.extract hll_count.init hll_count.merge hll_count.merge_partial
ieee_divide instr int64 is_inf is_nan json_array_append json_array_insert json_extract
json_extract_array json_extract_scalar json_extract_string_array json_flatten json_keys
json_query_array json_remove json_set json_strip_nulls json_type json_value_array justify_days
justify_hours justify_interval last_day lax_bool lax_float64 lax_int64 lax_string logical_and
logical_or make_interval max_by min_by
net.host net.ip_from_string net.ip_net_mask net.ip_to_string net.ip_trunc net.ipv4_from_int64
net.ipv4_to_int64 net.public_suffix net.reg_domain net.safe_ip_from_string
normalize_and_casefold offset ordinal parse_bignumeric parse_date parse_datetime parse_json
parse_numeric parse_time parse_timestamp quarter rand range range_bucket range_contains range_end
range_intersect range_overlaps range_sessionize range_start regexp_contains regexp_extract
regexp_extract_all s2_cellidfrompoint s2_coveringcellids safe_add safe_cast
safe_convert_bytes_to_string safe_divide safe_multiply safe_negate safe_offset safe_ordinal
safe_subtract search sha1 split st_angle st_area st_asbinary st_asgeojson st_astext st_azimuth
st_boundary st_boundingbox st_buffer st_bufferwithtolerance st_centroid st_centroid_agg
st_closestpoint st_clusterdbscan st_contains st_convexhull st_coveredby st_covers st_difference
st_dimension st_disjoint st_distance st_dump st_dwithin st_endpoint st_equals st_extent
st_exteriorring st_geogfrom st_geogfromgeojson st_geogfromtext st_geogfromwkb st_geogpoint
st_geogpointfromgeohash st_geohash st_geometrytype st_hausdorffdistance st_interiorrings
st_intersection st_intersects st_intersectsbox st_isclosed st_iscollection st_isempty st_isring
st_length st_lineinterpolatepoint st_linelocatepoint st_linesubstring st_makeline st_makepolygon
st_maxdistance st_npoints st_numgeometries st_numpoints st_perimeter st_pointn st_regionstats
st_simplify st_snaptogrid st_startpoint st_touches st_union st_union_agg st_within st_x st_y
starts_with string string_array struct time_add time_diff time_sub time_trunc timestamp_add
timestamp_bucket timestamp_diff timestamp_from_unix_micros timestamp_from_unix_millis
timestamp_from_unix_seconds timestamp_micros timestamp_millis timestamp_seconds timestamp_sub
timestamp_trunc to_base32 to_base64 to_code_points to_json_string typeof unicode unix_date
unix_micros unix_millis unix_seconds week"""
    ).split()
)
"""Those that only compute. Not among them: what asks a model or another database (ML, AI,
EXTERNAL_QUERY, VECTOR_SEARCH), uses a key, or tells who asks."""
