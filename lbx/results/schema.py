"""Tables of a results file.

Times are UTC. Views contain no data. They are created from ``lbx.results.views`` when a file is opened for writing.
"""

from __future__ import annotations

SCHEMA_VERSION = 1
"""Version of the tables. Files of another version are refused."""

_INTERVAL = """low DOUBLE,
    high DOUBLE,
    se DOUBLE,
    df DOUBLE,
    clusters INTEGER,
    cluster_by VARCHAR,
    method VARCHAR,
    within DOUBLE"""
_COVERAGE = """answered INTEGER,
    asked INTEGER,
    failed_as_0 DOUBLE,
    failed_as_1 DOUBLE"""

SCHEMA = f"""
CREATE TABLE runs (
    run_id VARCHAR,
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
    status VARCHAR NOT NULL,
    task_samples JSON,
    metadata JSON,
    unscored_samples JSON,
    texts VARCHAR,
    rescorings JSON,
    PRIMARY KEY (run_id)
);
CREATE TABLE samples (
    benchmark VARCHAR,
    task VARCHAR,
    sample_id VARCHAR,
    language VARCHAR NOT NULL,
    length BIGINT NOT NULL,
    length_unit VARCHAR NOT NULL,
    "references" JSON NOT NULL,
    question VARCHAR NOT NULL,
    context_sha256 VARCHAR,
    meta JSON NOT NULL,
    position INTEGER NOT NULL,
    text_hashes JSON,
    PRIMARY KEY (benchmark, task, sample_id)
);
CREATE TABLE generations (
    run_id VARCHAR,
    benchmark VARCHAR,
    task VARCHAR,
    sample_id VARCHAR,
    iteration INTEGER,
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
    reasoning_tokens INTEGER,
    reasoning_closed BOOLEAN,
    stop_in_reasoning BOOLEAN,
    tokens_cut INTEGER,
    reference_cut BOOLEAN,
    bos_tokens INTEGER,
    steps JSON,
    source_row VARCHAR,
    error_type VARCHAR,
    output_ids INTEGER[],
    system_prompt VARCHAR,
    output_sha256 VARCHAR,
    output_words INTEGER,
    instructions_sha256 VARCHAR,
    served_model VARCHAR,
    PRIMARY KEY (run_id, benchmark, task, sample_id, iteration)
);
CREATE TABLE rounds (
    rubric VARCHAR,
    round_id VARCHAR,
    kind VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    iteration INTEGER NOT NULL,
    against_run_id VARCHAR,
    against_iteration INTEGER NOT NULL,
    answer_first BOOLEAN,
    document_sha256 VARCHAR NOT NULL,
    marks VARCHAR[] NOT NULL,
    answer_sha256 VARCHAR,
    answer_words BIGINT,
    against_sha256 VARCHAR,
    against_words BIGINT,
    verdicts JSON,
    pattern VARCHAR,
    scale_low DOUBLE,
    scale_high DOUBLE,
    PRIMARY KEY (rubric, round_id)
);
CREATE TABLE scores (
    run_id VARCHAR,
    benchmark VARCHAR,
    task VARCHAR,
    sample_id VARCHAR,
    iteration INTEGER,
    metric VARCHAR,
    metric_version INTEGER NOT NULL,
    score DOUBLE NOT NULL,
    extracted VARCHAR,
    headline BOOLEAN NOT NULL,
    error VARCHAR,
    partial VARCHAR,
    PRIMARY KEY (run_id, benchmark, task, sample_id, iteration, metric)
);
CREATE TABLE numbers (
    run_id VARCHAR,
    benchmark VARCHAR,
    kind VARCHAR,
    task VARCHAR,
    "grouping" VARCHAR,
    name VARCHAR,
    metric VARCHAR,
    judge VARCHAR,
    against VARCHAR,
    questions VARCHAR,
    length_unit VARCHAR,
    length_up_to BIGINT,
    metric_version INTEGER NOT NULL,
    n INTEGER NOT NULL,
    score DOUBLE,
    official DOUBLE,
    unit DOUBLE,
    partial BOOLEAN,
    headline BOOLEAN,
    in_paper BOOLEAN,
    position INTEGER,
    task_position INTEGER,
    {_INTERVAL},
    {_COVERAGE},
    PRIMARY KEY (run_id, benchmark, kind, task, "grouping", name, metric, judge, against, questions, length_unit,
                 length_up_to)
);
CREATE TABLE retrievals (
    retriever VARCHAR,
    benchmark VARCHAR,
    task VARCHAR,
    sample_id VARCHAR,
    context_sha256 VARCHAR,
    rank INTEGER,
    chunk_index INTEGER NOT NULL,
    score DOUBLE NOT NULL,
    text VARCHAR NOT NULL,
    PRIMARY KEY (retriever, benchmark, task, sample_id, context_sha256, rank)
);
CREATE TABLE embeddings (
    model VARCHAR,
    text_sha256 VARCHAR,
    vector BLOB NOT NULL,
    PRIMARY KEY (model, text_sha256)
);
CREATE TABLE sessions (
    run_id VARCHAR,
    session INTEGER,
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
    spec JSON,
    done_before BIGINT,
    to_ask BIGINT,
    PRIMARY KEY (run_id, session)
);
CREATE TABLE rating_sets (
    set_id VARCHAR,
    kind VARCHAR NOT NULL,
    question_source VARCHAR NOT NULL,
    runs JSON NOT NULL,
    scale_low DOUBLE,
    scale_high DOUBLE,
    seed BIGINT NOT NULL,
    raters_per_item INTEGER,
    bundle_digest VARCHAR,
    created_at TIMESTAMP NOT NULL,
    PRIMARY KEY (set_id)
);
CREATE TABLE rating_items (
    set_id VARCHAR,
    item INTEGER,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    meta JSON NOT NULL,
    PRIMARY KEY (set_id, item)
);
CREATE TABLE ratings (
    set_id VARCHAR,
    item INTEGER,
    rater VARCHAR,
    run_id VARCHAR,
    iteration INTEGER,
    against_run_id VARCHAR,
    against_iteration INTEGER,
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
