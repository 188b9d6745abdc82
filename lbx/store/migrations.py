"""The results file's tables, as numbered steps. A step that has been released is never edited; a new one is added.

Each step runs in one transaction with the row that records it, so a killed migration leaves the file as it was.
Times are UTC. Views hold no data: they are made anew, from ``lbx.store.views``, whenever a file is opened for writing.
"""

from __future__ import annotations

INITIAL = """
CREATE TABLE runs (
    run_id VARCHAR PRIMARY KEY,
    model VARCHAR NOT NULL,
    backend VARCHAR NOT NULL,
    backend_version VARCHAR NOT NULL,
    benchmark_versions JSON NOT NULL,
    bundle_digest VARCHAR NOT NULL,
    settings JSON NOT NULL,
    hardware JSON NOT NULL,
    lbx_version VARCHAR NOT NULL,
    started_at TIMESTAMP NOT NULL,
    finished_at TIMESTAMP,
    status VARCHAR NOT NULL
);
CREATE TABLE samples (
    benchmark VARCHAR, task VARCHAR, sample_id VARCHAR,
    language VARCHAR NOT NULL,
    length BIGINT NOT NULL,
    length_unit VARCHAR NOT NULL,
    "references" JSON NOT NULL,
    question VARCHAR NOT NULL,
    context_sha256 VARCHAR NOT NULL,
    meta JSON NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (benchmark, task, sample_id)
);
CREATE TABLE generations (
    run_id VARCHAR, benchmark VARCHAR, task VARCHAR, sample_id VARCHAR, iteration INTEGER,
    output VARCHAR,
    reasoning VARCHAR,
    finish_reason VARCHAR,
    prompt_tokens INTEGER,
    cached_tokens INTEGER,
    output_tokens INTEGER,
    original_tokens INTEGER,
    truncated BOOLEAN,
    prompt_sha256 VARCHAR,
    prompt_source VARCHAR,
    prefill_s DOUBLE,
    decode_s DOUBLE,
    seed BIGINT,
    error VARCHAR,
    created_at TIMESTAMP NOT NULL,
    PRIMARY KEY (run_id, benchmark, task, sample_id, iteration)
);
CREATE TABLE scores (
    run_id VARCHAR, benchmark VARCHAR, task VARCHAR, sample_id VARCHAR, iteration INTEGER,
    metric VARCHAR, metric_version INTEGER,
    score DOUBLE NOT NULL,
    extracted VARCHAR,
    headline BOOLEAN NOT NULL,
    PRIMARY KEY (run_id, benchmark, task, sample_id, iteration, metric, metric_version)
);
CREATE TABLE task_results (
    run_id VARCHAR, benchmark VARCHAR, task VARCHAR, metric VARCHAR, metric_version INTEGER,
    n INTEGER NOT NULL,
    score DOUBLE,
    official DOUBLE,
    headline BOOLEAN NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (run_id, benchmark, task, metric, metric_version)
);
"""

MARKS_AND_GROUPS = """
ALTER TABLE generations ADD COLUMN reasoning_tokens INTEGER;
ALTER TABLE generations ADD COLUMN reasoning_closed BOOLEAN;
ALTER TABLE generations ADD COLUMN stop_in_reasoning BOOLEAN;
ALTER TABLE generations ADD COLUMN tokens_cut INTEGER;
ALTER TABLE generations ADD COLUMN reference_cut BOOLEAN;
ALTER TABLE generations ADD COLUMN bos_tokens INTEGER;
ALTER TABLE generations ADD COLUMN steps JSON;
ALTER TABLE generations ADD COLUMN source_row VARCHAR;
ALTER TABLE generations ADD COLUMN error_type VARCHAR;
ALTER TABLE scores ADD COLUMN error VARCHAR;
ALTER TABLE scores ADD COLUMN partial VARCHAR;
ALTER TABLE task_results ADD COLUMN partial BOOLEAN;
ALTER TABLE task_results ADD COLUMN task_position INTEGER;
CREATE TABLE group_results (
    run_id VARCHAR, benchmark VARCHAR, "grouping" VARCHAR, name VARCHAR, metric VARCHAR, metric_version INTEGER,
    n INTEGER NOT NULL,
    score DOUBLE,
    official DOUBLE,
    partial BOOLEAN NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (run_id, benchmark, "grouping", name, metric, metric_version)
);
CREATE TABLE retrievals (
    retriever VARCHAR, benchmark VARCHAR, task VARCHAR, sample_id VARCHAR, context_sha256 VARCHAR,
    rank INTEGER,
    chunk_index INTEGER NOT NULL,
    score DOUBLE NOT NULL,
    text VARCHAR NOT NULL,
    PRIMARY KEY (retriever, benchmark, task, sample_id, context_sha256, rank)
);
CREATE TABLE embeddings (
    model VARCHAR, text_sha256 VARCHAR,
    vector BLOB NOT NULL,
    PRIMARY KEY (model, text_sha256)
);
"""

SESSIONS = """
CREATE TABLE sessions (
    run_id VARCHAR, session INTEGER,
    started_at TIMESTAMP NOT NULL,
    finished_at TIMESTAMP,
    status VARCHAR NOT NULL,
    workers INTEGER NOT NULL,
    planned_samples BIGINT,
    planned_prompt_tokens BIGINT,
    planned_distinct_tokens BIGINT,
    planned_new_tokens BIGINT,
    estimated_s DOUBLE,
    estimate_basis VARCHAR,
    answered BIGINT,
    failed BIGINT,
    prompt_tokens BIGINT,
    computed_tokens BIGINT,
    output_tokens BIGINT,
    wall_s DOUBLE,
    prefill_s DOUBLE,
    decode_s DOUBLE,
    peak_memory_bytes BIGINT,
    hardware JSON NOT NULL,
    PRIMARY KEY (run_id, session)
);
"""

VERIFICATIONS = """
CREATE TABLE verifications (
    run_id VARCHAR, benchmark VARCHAR, task VARCHAR, sample_id VARCHAR, iteration INTEGER, step INTEGER,
    equal BOOLEAN NOT NULL,
    first_difference INTEGER,
    logit_gap DOUBLE,
    output_alone VARCHAR NOT NULL,
    checked_at TIMESTAMP NOT NULL,
    PRIMARY KEY (run_id, benchmark, task, sample_id, iteration, step)
);
"""

TASK_SAMPLES = "ALTER TABLE runs ADD COLUMN task_samples JSON;"

SESSION_SPECS = "ALTER TABLE sessions ADD COLUMN spec JSON;"

OUTPUT_IDS = "ALTER TABLE generations ADD COLUMN output_ids INTEGER[];"

SYSTEM_PROMPTS = "ALTER TABLE generations ADD COLUMN system_prompt VARCHAR;"

RUN_METADATA = "ALTER TABLE runs ADD COLUMN metadata JSON;"

_SURENESS = (
    "low DOUBLE",
    "high DOUBLE",
    "se DOUBLE",
    "df DOUBLE",
    "clusters INTEGER",
    "cluster_by VARCHAR",
    "method VARCHAR",
    "within DOUBLE",
)
_LEFT_OPEN = (
    "answered INTEGER",
    "asked INTEGER",
    "failed_as_0 DOUBLE",
    "failed_as_1 DOUBLE",
)
_OF_INTERVALS, _OF_NUMBERS = ", ".join(_SURENESS), ", ".join((*_SURENESS, *_LEFT_OPEN))

INTERVALS = (
    "".join(
        f"ALTER TABLE {table} ADD COLUMN {column};"
        for table in ("task_results", "group_results")
        for column in (*_SURENESS, *_LEFT_OPEN)
    )
    + f"""
CREATE TABLE benchmark_results (
    run_id VARCHAR, benchmark VARCHAR, metric_version INTEGER,
    n INTEGER NOT NULL,
    score DOUBLE,
    {_OF_NUMBERS},
    PRIMARY KEY (run_id, benchmark, metric_version)
);
CREATE TABLE length_results (
    run_id VARCHAR, benchmark VARCHAR, task VARCHAR, metric VARCHAR, metric_version INTEGER,
    length_unit VARCHAR, position INTEGER,
    length_up_to BIGINT,
    n INTEGER NOT NULL,
    score DOUBLE,
    {_OF_INTERVALS},
    PRIMARY KEY (run_id, benchmark, task, metric, metric_version, length_unit, position)
);
"""
)

RATINGS = """
CREATE TABLE rating_sets (
    set_id VARCHAR PRIMARY KEY,
    kind VARCHAR NOT NULL,
    question_source VARCHAR NOT NULL,
    runs JSON NOT NULL,
    scale_low DOUBLE,
    scale_high DOUBLE,
    seed BIGINT NOT NULL,
    raters_per_item INTEGER,
    bundle_digest VARCHAR,
    created_at TIMESTAMP NOT NULL
);
CREATE TABLE rating_items (
    set_id VARCHAR, item INTEGER,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    meta JSON NOT NULL,
    PRIMARY KEY (set_id, item)
);
CREATE TABLE ratings (
    set_id VARCHAR, item INTEGER, rater VARCHAR,
    run_id VARCHAR, iteration INTEGER,
    against_run_id VARCHAR, against_iteration INTEGER,
    revision INTEGER,
    score DOUBLE,
    verdict VARCHAR,
    shown_at INTEGER,
    comment VARCHAR,
    seconds DOUBLE,
    source_row VARCHAR,
    created_at TIMESTAMP NOT NULL,
    PRIMARY KEY (set_id, item, rater, run_id, iteration, against_run_id, against_iteration, revision)
);
"""

# What an older lbx wrote where nobody knew the document: the hash of an empty text.
UNKNOWN_DOCUMENTS = """
ALTER TABLE samples ALTER COLUMN context_sha256 DROP NOT NULL;
UPDATE samples SET context_sha256 = NULL
WHERE context_sha256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';
"""

UNSCORED_SAMPLES = """
ALTER TABLE runs ADD COLUMN unscored_samples JSON;
UPDATE runs SET unscored_samples = known.counts FROM (
    SELECT run_id, json_group_object('leval/' || task, samples) AS counts FROM (
        SELECT run_id, task, count(DISTINCT sample_id) AS samples
        FROM generations JOIN samples USING (benchmark, task, sample_id)
        WHERE benchmark = 'leval' AND meta->>'evaluation' IN ('LLM', 'human') GROUP BY ALL
    ) GROUP BY ALL
) known WHERE known.run_id = runs.run_id;
"""
# L-Eval alone has such samples: so a complete run of before has its official numbers as soon as it is scored again.

UNITS = """
ALTER TABLE task_results ADD COLUMN unit DOUBLE;
ALTER TABLE task_results ADD COLUMN in_paper BOOLEAN;
ALTER TABLE group_results ADD COLUMN unit DOUBLE;
UPDATE task_results SET unit = CASE benchmark WHEN 'longbench_pro' THEN 1 ELSE 100 END, in_paper = false;
UPDATE task_results t SET in_paper = true FROM task_results h
WHERE h.headline AND h.run_id = t.run_id AND h.benchmark = t.benchmark AND h.task = t.task
    AND h.metric_version = t.metric_version
    AND (t.metric = h.metric OR starts_with(t.metric, h.metric || '/') OR t.benchmark = 'leval');
UPDATE group_results SET unit = CASE benchmark WHEN 'longbench_pro' THEN 1 ELSE 100 END;
UPDATE group_results g SET unit = s.width FROM (
    SELECT set_id AS name, scale_high - scale_low AS width FROM rating_sets
    UNION ALL
    SELECT run_id, max(try_cast(meta->'verdicts'->>'high' AS DOUBLE) - try_cast(meta->'verdicts'->>'low' AS DOUBLE))
    FROM generations JOIN samples USING (benchmark, task, sample_id) WHERE benchmark = 'judge' GROUP BY run_id
) s WHERE g.metric = 'rating' AND g."grouping" IN ('judge', 'people')
    AND (g.name = s.name OR starts_with(g.name, s.name || ', '));
"""

SESSION_EXTENTS = "ALTER TABLE sessions ADD COLUMN done_before BIGINT; ALTER TABLE sessions ADD COLUMN to_ask BIGINT;"

MIGRATIONS: tuple[str, ...] = (
    INITIAL,
    MARKS_AND_GROUPS,
    SESSIONS,
    VERIFICATIONS,
    TASK_SAMPLES,
    SESSION_SPECS,
    OUTPUT_IDS,
    SYSTEM_PROMPTS,
    RUN_METADATA,
    INTERVALS,
    RATINGS,
    UNKNOWN_DOCUMENTS,
    UNSCORED_SAMPLES,
    UNITS,
    SESSION_EXTENTS,
)
"""MIGRATIONS[i] takes a file from version i to version i + 1."""
