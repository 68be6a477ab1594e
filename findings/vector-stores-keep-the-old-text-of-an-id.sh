#!/usr/bin/env bash
# Guess: a second vector with an id that a vector store has replaces the first one, or is an error. SQL's `INSERT OR
# REPLACE` replaces. No store keeps the old one without a word, and none keeps both under a key.
# Seen with chromadb 1.5.9, lancedb 0.40.0, faiss-cpu 1.15.1, usearch 2.26.6, hnswlib 0.8.0, qdrant-client 1.20.0 and
# sqlite-vec 0.1.9 for Python: chromadb keeps the old vector and its text, and returns without an error. lancedb and
# faiss keep both, and a search finds the id twice. usearch raises an error. hnswlib and qdrant-client replace.
# sqlite-vec raises an error for INSERT, for INSERT OR REPLACE, for INSERT OR IGNORE and for ON CONFLICT, and only
# UPDATE changes the vector. After a deletion, hnswlib raises an error if a search asks for more vectors than are left,
# and the error blames other things.
# Output seen (Python 3.11), what a search for the new vector finds:
#   chromadb, add: old
#   lancedb, add: new, old
#   faiss, add_with_ids: 1, 1
#   usearch, add: RuntimeError: Duplicate keys not allowed in high-level wrappers
#   hnswlib, add_items: 1
#   qdrant-client, upsert: new
#   sqlite-vec, INSERT: SQLError: UNIQUE constraint failed on notes primary key
#   sqlite-vec, INSERT OR REPLACE: SQLError: UNIQUE constraint failed on notes primary key
#   sqlite-vec, INSERT OR IGNORE: SQLError: UNIQUE constraint failed on notes primary key
#   sqlite-vec, ON CONFLICT: SQLError: UPSERT not implemented for virtual table "notes"
#   sqlite-vec, UPDATE: new
#   hnswlib, two of two after a deletion: RuntimeError: Cannot return the results in a contiguous 2D array. Probably ef or M is too small
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check chromadb==1.5.9 lancedb==0.40.0 faiss-cpu==1.15.1 usearch==2.26.6 \
    hnswlib==0.8.0 qdrant-client==1.20.0 sqlite-vec==0.1.9 apsw==3.54.1.0
cat >stores.py <<'PY'
import json
import apsw, chromadb, faiss, hnswlib, lancedb, numpy, sqlite_vec
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams
from usearch.index import Index

VECTORS = {"old": [1.0, 0.0, 0.0, 0.0], "new": [0.0, 1.0, 0.0, 0.0]}
OLD, NEW = (numpy.array([vector], dtype="float32") for vector in VECTORS.values())


def with_chromadb():
    notes = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False)).create_collection("notes")
    for text, vector in VECTORS.items():
        notes.add(ids=["1"], embeddings=[vector], documents=[text])
    return notes.query(query_embeddings=[VECTORS["new"]], n_results=2)["documents"][0]


def with_lancedb():
    notes = lancedb.connect("lance").create_table("notes", [{"id": 1, "vector": VECTORS["old"], "text": "old"}])
    notes.add([{"id": 1, "vector": VECTORS["new"], "text": "new"}])
    return [note["text"] for note in notes.search(VECTORS["new"]).limit(2).to_list()]


def with_faiss():
    notes = faiss.IndexIDMap(faiss.IndexFlatL2(4))
    notes.add_with_ids(OLD, numpy.array([1]))
    notes.add_with_ids(NEW, numpy.array([1]))
    return notes.search(NEW, 2)[1][0]


def with_usearch():
    notes = Index(ndim=4)
    notes.add(1, OLD[0])
    notes.add(1, NEW[0])
    return [note.key for note in notes.search(NEW[0], 2)]


def with_hnswlib():
    notes = hnswlib.Index("l2", 4)
    notes.init_index(2)
    notes.add_items(OLD, [1])
    notes.add_items(NEW, [1])
    assert notes.knn_query(NEW, 1)[1][0][0] == 0  # the distance of the new vector
    return notes.knn_query(NEW, 1)[0][0]


def with_qdrant():
    client = QdrantClient(":memory:")
    client.create_collection("notes", vectors_config=VectorParams(size=4, distance=Distance.COSINE))
    for text, vector in VECTORS.items():
        client.upsert("notes", [PointStruct(id=1, vector=vector, payload={"text": text})])
    return [note.payload["text"] for note in client.query_points("notes", VECTORS["new"]).points]


def with_sqlite_vec(statement):
    old, new = map(json.dumps, VECTORS.values())
    database = apsw.Connection(":memory:")
    database.enable_load_extension(True)
    database.load_extension(sqlite_vec.loadable_path())
    database.execute("CREATE VIRTUAL TABLE notes USING vec0(id TEXT PRIMARY KEY, vector FLOAT[4], +text TEXT)")
    database.execute("INSERT INTO notes VALUES ('1', ?, 'old')", [old])
    database.execute(statement, [new])
    return [text for text, in database.execute("SELECT text FROM notes WHERE vector MATCH ? AND k = 2", [new])]


def with_a_deletion():
    notes = hnswlib.Index("l2", 4)
    notes.init_index(2)
    notes.add_items(numpy.concatenate([OLD, NEW]), [1, 2])
    notes.mark_deleted(1)
    return notes.knn_query(NEW, 2)[0][0]


def show(name, use, *arguments):
    try:
        seen = ", ".join(map(str, use(*arguments)))
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
    print(f"{name}: {seen}")


show("chromadb, add", with_chromadb)
show("lancedb, add", with_lancedb)
show("faiss, add_with_ids", with_faiss)
show("usearch, add", with_usearch)
show("hnswlib, add_items", with_hnswlib)
show("qdrant-client, upsert", with_qdrant)
show("sqlite-vec, INSERT", with_sqlite_vec, "INSERT INTO notes VALUES ('1', ?, 'new')")
show("sqlite-vec, INSERT OR REPLACE", with_sqlite_vec, "INSERT OR REPLACE INTO notes VALUES ('1', ?, 'new')")
show("sqlite-vec, INSERT OR IGNORE", with_sqlite_vec, "INSERT OR IGNORE INTO notes VALUES ('1', ?, 'new')")
upsert = "INSERT INTO notes VALUES ('1', ?, 'new') ON CONFLICT (id) DO UPDATE SET text = 'new'"
show("sqlite-vec, ON CONFLICT", with_sqlite_vec, upsert)
show("sqlite-vec, UPDATE", with_sqlite_vec, "UPDATE notes SET vector = ?, text = 'new' WHERE id = '1'")
show("hnswlib, two of two after a deletion", with_a_deletion)
PY
v/bin/python stores.py 2>errors | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
chromadb, add: old
lancedb, add: new, old
faiss, add_with_ids: 1, 1
usearch, add: RuntimeError: Duplicate keys not allowed in high-level wrappers
hnswlib, add_items: 1
qdrant-client, upsert: new
sqlite-vec, INSERT: SQLError: UNIQUE constraint failed on notes primary key
sqlite-vec, INSERT OR REPLACE: SQLError: UNIQUE constraint failed on notes primary key
sqlite-vec, INSERT OR IGNORE: SQLError: UNIQUE constraint failed on notes primary key
sqlite-vec, ON CONFLICT: SQLError: UPSERT not implemented for virtual table "notes"
sqlite-vec, UPDATE: new
hnswlib, two of two after a deletion: RuntimeError: Cannot return the results in a contiguous 2D array. Probably ef or M is too small
TEXT
