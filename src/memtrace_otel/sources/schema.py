"""The tables of the embedded store. Another shape is another `VERSION`, and a step in `migrations` that leads to it."""

VERSION = 6
APPLICATION_ID = 0x4D54_4F54
"""`MTOT`: tells our files from any other SQLite database."""

# Which spans read a version that the span `origin` produced, and which list the variable `ref` among their outputs: by
# `lineage.key_of` them, a sixth of the bytes of their names.
READER_TABLE = """CREATE TABLE reader (
    origin INTEGER NOT NULL, span INTEGER NOT NULL REFERENCES span (id), PRIMARY KEY (origin, span)
) WITHOUT ROWID"""
WRITER_TABLE = READER_TABLE.replace("reader", "writer").replace("origin", "ref")

# The kinds that are looked for, and none, to count the others. With all of them the index takes 25 bytes more of a
# span; it has them in files that version 5 or an older one made.
INDEXED_KINDS = "kind IN ('', 'judge', 'respond')"

PACKING_STATEMENTS = (
    # What spans of a scope say, to pack others with; made when the scope had so many spans.
    """CREATE TABLE dictionary (
        number INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, spans INTEGER NOT NULL, sample BLOB NOT NULL
    )""",
    "CREATE INDEX dictionary_scope ON dictionary (scope, number, spans)",
    # Texts that grow: `size` bytes in pieces, found by `head` while it may grow.
    "CREATE TABLE stream (id INTEGER PRIMARY KEY AUTOINCREMENT, head INTEGER, size INTEGER NOT NULL)",
    "CREATE INDEX stream_head ON stream (head)",
    # A piece of a stream, deflated: the id has the stream in front of the number of the piece.
    "CREATE TABLE piece (id INTEGER PRIMARY KEY, text BLOB NOT NULL)",
    # How many bytes of a stream a span needs.
    """CREATE TABLE stream_use (
        span INTEGER NOT NULL, stream INTEGER NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (span, stream)
    ) WITHOUT ROWID""",
    "CREATE INDEX stream_use_size ON stream_use (stream, size)",
    # Rows of spans up to this one are packed, as far as they can be.
    "CREATE TABLE packing (up_to INTEGER NOT NULL)",
    "INSERT INTO packing VALUES (0)",
)

STATEMENTS = (
    # Requests as received, committed before anything else happens to them; gone once their spans are rows.
    "CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, received INTEGER NOT NULL)",
    # What could not be read, kept whole: a later version may read it.
    """CREATE TABLE quarantine (
        id INTEGER PRIMARY KEY, body BLOB NOT NULL, reason TEXT NOT NULL, received INTEGER NOT NULL
    )""",
    # Resource and instrumentation scope, shared by many spans: an OTLP request without spans.
    "CREATE TABLE source (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
    # One row per span: the columns that are asked for, and the span as received, so that nothing is lost.
    """CREATE TABLE span (
        id INTEGER PRIMARY KEY,
        trace_id TEXT NOT NULL,
        span_id TEXT NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        scope TEXT NOT NULL,
        start INTEGER NOT NULL,
        source INTEGER NOT NULL REFERENCES source (id),
        body BLOB NOT NULL,
        UNIQUE (trace_id, span_id)
    )""",
    "CREATE INDEX span_start ON span (start)",
    f"CREATE INDEX span_kind ON span (kind, start) WHERE {INDEXED_KINDS}",
    "CREATE INDEX span_scope ON span (scope, start)",
    READER_TABLE,
    WRITER_TABLE,
    """CREATE TABLE verdict (
        attribution_id TEXT PRIMARY KEY, answer TEXT NOT NULL, document TEXT NOT NULL, created INTEGER NOT NULL
    )""",
    "CREATE INDEX verdict_answer ON verdict (answer, created)",
    # Span ids already sent to a target: an id is never sent twice.
    """CREATE TABLE sent (
        target TEXT NOT NULL, span_id TEXT NOT NULL, sent_at INTEGER NOT NULL, PRIMARY KEY (target, span_id)
    ) WITHOUT ROWID""",
    *PACKING_STATEMENTS,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
