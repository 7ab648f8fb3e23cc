#!/usr/bin/env python3
"""A receiver of profiles that believes nothing: the real ones cannot be had in a test.

  receiver.py [STATUS …]     its port on the first line; then a line of JSON for each request that it took

It checks what Pyroscope, Parca and an OTLP receiver check (paths, types, ids, tables, strings), by the documents of their
interfaces and with no code of the sender's. The first requests are answered with the given statuses, whatever they hold; `hang`
is an answer that does not come before the sender's patience has ended. Whatever is wrong is answered with 400, and printed.
"""

import base64
import gzip
import http.server
import json
import struct
import sys
import threading


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """Returns the fields of a message: {number: [int or bytes, …]}."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
            assert len(value) == length, "a field that is cut off"
        else:
            raise AssertionError(f"wire type {kind}")
        found.setdefault(key >> 3, []).append(value)
    return found


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def packed(found, number):
    values = []
    for data in found.get(number, []):
        at = 0
        while at < len(data):
            value, at = varint(data, at)
            values.append(value)
    return values


def one(found, number, missing=0):
    return found.get(number, [missing])[0]


def pprof(data):
    """Checks a profile as Parca's normalizer does; returns its sums by type, its duration and its build ids."""
    top = fields(gzip.decompress(data))
    texts = [text.decode() for text in top[6]]
    assert texts[0] == "", "text 0 is not empty"
    for number, what in ((3, "mapping"), (4, "location"), (5, "function")):
        ids = [one(fields(entry), 1) for entry in top.get(number, [])]
        assert ids == list(range(1, len(ids) + 1)), f"{what} ids are not 1 to n"
    types = [texts[one(fields(entry), 1)] for entry in top[1]]
    assert all("-" not in name for name in types), "a hyphen in a type"
    sums = [0] * len(types)
    for entry in top[2]:
        sample = fields(entry)
        ids = packed(sample, 1)
        assert ids and all(1 <= at <= len(top[4]) for at in ids), "a location that is not there"
        values = [signed(value) for value in packed(sample, 2)]
        assert len(values) == len(types), "values and types differ"
        sums = [a + b for a, b in zip(sums, values)]
    ids = [texts[one(fields(entry), 6)] for entry in top[3]]
    return {"sums": dict(zip(types, sums)), "duration": one(top, 10), "build_ids": sum(1 for name in ids if len(name) == 40)}


def series(labels, profile):
    labels = dict(labels)
    assert labels.get("__name__") and labels.get("service_name"), f"labels: {labels}"
    return {"labels": labels, **pprof(profile)}


def pyroscope(body, kind):
    assert kind == "application/proto", kind
    taken = []
    for entry in fields(body)[1]:
        found = fields(entry)
        labels = [(fields(pair)[1][0].decode(), fields(pair)[2][0].decode()) for pair in found[1]]
        for entry in found[2]:
            sample = fields(entry)
            taken.append({**series(labels, sample[1][0]), "id": sample[2][0].decode()})
    return taken


def parca(body, kind):
    assert kind == "application/json", kind
    taken = []
    for entry in json.loads(body)["series"]:
        labels = [(pair["name"], pair["value"]) for pair in entry["labels"]["labels"]]
        for sample in entry["samples"]:
            taken.append(series(labels, base64.b64decode(sample["rawProfile"], validate=True)))
    for entry in taken:
        # A duration would make it a difference, of what is in use, too.
        assert entry["duration"] == 0
    return taken


def otlp(body, kind):
    assert kind == "application/x-protobuf", kind
    request = fields(gzip.decompress(body))
    tables = fields(request[2][0])
    for number in (1, 2, 3, 4, 6, 7):
        assert tables[number][0] == b"", f"element 0 of table {number} is not zero"
    texts = [text.decode() for text in tables[5]]
    assert texts[0] == ""
    mappings, locations, functions, attributes, stacks = (
        [fields(entry) for entry in tables[number]] for number in (1, 2, 3, 6, 7)
    )
    assert all(texts[one(pair, 1)] for pair in attributes[1:])
    for mapping in mappings[1:]:
        assert texts[one(mapping, 4)] and all(at < len(attributes) for at in packed(mapping, 5))
    for location in locations[1:]:
        lines = [fields(line) for line in location.get(3, [])]
        assert bool(lines) != bool(one(location, 1)), "neither code nor a name"
        assert one(location, 1) < len(mappings) and all(0 < one(line, 1) < len(functions) for line in lines)
    for stack in stacks[1:]:
        assert packed(stack, 1) and all(0 < at < len(locations) for at in packed(stack, 1))
    taken = []
    for entry in request[1]:
        of = fields(entry)
        labels = {}
        for pair in fields(of[1][0])[1]:
            pair = fields(pair)
            value = fields(pair[2][0])
            labels[pair[1][0].decode()] = value[1][0].decode() if 1 in value else value[3][0]
        assert labels["service.name"]
        scoped = fields(of[2][0])
        assert one(fields(scoped[1][0]), 1), "no name of the scope"
        ids = set()
        for entry in scoped[2]:
            profile = fields(entry)
            kind = fields(profile[1][0])
            total = 0
            for entry in profile.get(2, []):
                sample = fields(entry)
                assert 0 < one(sample, 1) < len(stacks)
                (value,) = packed(sample, 4)
                total += signed(value)
            assert len(one(profile, 7)) == 16 and one(profile, 3) > 10**18
            assert texts[one(fields(profile[5][0]), 1)] == "memory" and one(profile, 6) > 0
            ids.add(one(profile, 7))
            taken.append({"labels": labels, "sums": {texts[one(kind, 1)]: total}, "duration": one(profile, 4)})
        assert len(ids) == len(scoped[2]), "an id twice"
    build_ids = sum(1 for pair in attributes[1:] if texts[one(pair, 1)] == "process.executable.build_id.gnu")
    for entry in taken:
        entry["build_ids"] = build_ids
    return taken


FORMS = {
    "/push.v1.PusherService/Push": pyroscope,
    "/profiles/writeraw": parca,
    "/v1development/profiles": otlp,
}
answers = sys.argv[1:]
printing = threading.Lock()


def say(what):
    with printing:
        print(json.dumps(what), flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with printing:
            answer = answers.pop(0) if answers else None
        if answer == "hang":
            # Until the sender has gone.
            self.rfile.read(1)
            return
        if answer:
            say({"answered": int(answer)})
            self.end(int(answer), b"as it was told to")
            return
        try:
            taken = FORMS[self.path](body, self.headers["Content-Type"])
        except Exception as error:  # whatever it is, it is the sender's
            say({"wrong": f"{type(error).__name__}: {error}", "path": self.path})
            self.end(400, str(error).encode())
            return
        say({"path": self.path, "taken": taken})
        self.end(200, b"")

    def end(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
