"""A small server on this machine that speaks the protocol of huggingface.co.

Datasets: /api/datasets/NAME/revision/REVISION lists files, and
/datasets/NAME/resolve/REVISION/FILE answers with X-Repo-Commit and ETag.

Models are pushed: a repository is created, preupload says which files are large, those are put
where the batch of git's LFS says, and a commit names all of them and holds the small ones.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

OLD, NEW = "a" * 40, "b" * 40
NAME, BOOKS = "owner/wiki", "other/books"
OWNER, TOKEN = "someone", "hf_token"  # who may push
Answer = tuple[int, bytes, dict[str, str]]  # code, body, headers


def answer_json(value: Any, code: int = 200) -> Answer:
    return code, json.dumps(value).encode(), {"Content-Type": "application/json"}


class Hub:
    """Datasets by commit, models that were pushed, and what was asked for."""

    def __init__(self, commits: dict[str, dict[str, bytes]], books: dict[str, bytes]):
        self.sets = {NAME: commits, BOOKS: {NEW: books}}
        self.refs = {"main": NEW}
        self.requests: list[tuple[str, str]] = []  # method, path
        self.gated = False
        self.models: dict[str, dict[str, bytes]] = {}  # files of repositories that were pushed
        self.private: dict[str, bool] = {}
        self.stored: dict[str, bytes] = {}  # large files, by sha256
        self.broken = ""  # a path that answers with an error

    def read(self, path: str) -> Answer:
        """Answer a request for the files of a dataset, or for one of them."""
        parts = path.split("/")
        if parts[:2] == ["api", "datasets"]:
            dataset, revision = "/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main"
            commit = self.refs.get(revision, revision)
            files = self.sets.get(dataset, {}).get(commit)
            if files is not None:
                listed = [
                    {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
                    for name, data in files.items()
                ]
                return answer_json({"id": dataset, "sha": commit, "siblings": listed})
        elif parts[0] == "datasets" and parts[3:4] == ["resolve"]:
            if self.gated:
                return 403, b"", {"X-Error-Code": "GatedRepo"}
            dataset, commit = "/".join(parts[1:3]), self.refs.get(parts[4], parts[4])
            data = self.sets.get(dataset, {}).get(commit, {}).get("/".join(parts[5:]))
            if data is not None:
                digest = hashlib.sha256(data).hexdigest()
                return 200, data, {"X-Repo-Commit": commit, "ETag": f'"{digest}"'}
        return 404, b"", {"X-Error-Code": "RepoNotFound"}

    def write(self, path: str, body: bytes, token: str, address: str) -> Answer:
        """Answer a request that changes something: a repository, a large file, a commit."""
        parts = path.split("/")
        repository = "/".join(parts[2:4])
        if parts[0] == "sha256":
            self.stored[parts[1]] = body
            return 200, b"", {}
        if token != f"Bearer {TOKEN}":
            return 401, b"", {}
        if self.broken and self.broken in path:
            return 500, b"", {}
        if path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            known = name in self.models
            hidden = asked.get("private") or asked.get("visibility") == "private"
            self.private.setdefault(name, bool(hidden))
            self.models.setdefault(name, {})
            return answer_json({"url": f"{address}/{name}"}, 409 if known else 200)
        if path == "api/validate-yaml":
            return answer_json({"errors": []})
        if "preupload" in parts:
            names = [file["path"] for file in json.loads(body)["files"]]
            large = {name: name.endswith(".safetensors") for name in names}
            modes = [
                {"path": name, "uploadMode": "lfs" if large[name] else "regular"} for name in names
            ]
            return answer_json({"files": [mode | {"shouldIgnore": False} for mode in modes]})
        if path.endswith("info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for one in objects:
                one["actions"] = {"upload": {"href": f"{address}/sha256/{one['oid']}"}}
            return answer_json({"transfer": "basic", "objects": objects})
        if "commit" in parts:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.models[repository][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    self.models[repository][value["path"]] = self.stored[value["oid"]]
            url = f"{address}/{repository}/commit/{NEW}"
            return answer_json({"commitUrl": url, "commitOid": NEW})
        return 404, b"", {}


@contextlib.contextmanager
def serving(hub: Hub) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            path = self.path.partition("?")[0].lstrip("/")
            hub.requests.append((self.command, path))
            if self.command in ("GET", "HEAD"):
                code, data, headers = hub.read(path)
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token, address = self.headers.get("Authorization", ""), self.headers["Host"]
                code, data, headers = hub.write(path, body, token, f"http://{address}")
            self.send_response(code)
            for key, value in (headers | {"Content-Length": str(len(data))}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = answer

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
