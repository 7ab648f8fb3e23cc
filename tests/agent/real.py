"""The agent's real receivers: Debian's Prometheus scrapes it, and OpenTelemetry's Collector takes its profiles.

    python3 with a profile ◄── skinflint agent ──OTLP──► the Collector (collector/, of its published Go modules): says what it took
                                    ▲
                                    └── scraped, and asked for its targets ── Prometheus ◄── asked here, by its own interface

        python3 tests/agent/real.py SKINFLINT COLLECTOR [--only prometheus|collector]

R1  What is held is said by the other program: Prometheus' answers to queries, the Collector's own words of each profile. What the agent says of
    itself (sent, refused) is compared with it.
R2  Each check has to fail where it should: the Collector is sent a profile that is spoilt, and Prometheus is asked for a figure that the
    agent does not have.
R3  Every wait has a bound, and what was started is ended by its number. Ports are the kernel's to choose.
R4  Exit 0: all held. 1: one did not. 2: something is not installed.

Not here: receivers of our own, which check what the interfaces' documents demand (receiver.py).
"""
import argparse
import contextlib
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

PATIENCE_S = 120
PROGRAM = ("import json, sys\nheld = [json.loads(json.dumps({'n': n, 'of': list(range(20))})) for n in range(20000)]\n"
           "print('held', flush=True)\nsys.stdin.read()\n")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def started(words, log, **more):
    """A process, ended at the end; what it says on both streams is in `log`, but for a stdout that is asked for."""
    with open(log, "wb") as out:
        process = subprocess.Popen(words, stderr=out, **{"stdin": subprocess.DEVNULL, "stdout": out, **more})
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def until(what, there, running, log):
    """What `there` returns as soon as it is something; `running` is the process that it depends on."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and running.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            found = there()
            if found:
                return found
        time.sleep(0.2)  # CLOCK: the step of a bounded wait
    with open(log, errors="replace") as words:
        sys.exit(f"not within {PATIENCE_S} s, or it has ended: {what}\n{words.read()[-3000:]}")


def got(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def figures(agent):
    return {name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", got(agent + "metrics"), re.M) if not name.startswith("#")}


def check_prometheus(agent, pid, folder):
    """[(held, sentence)] of a Prometheus that scrapes the agent."""
    port = free_port()
    address = urllib.parse.urlparse(agent).netloc
    config = os.path.join(folder, "prometheus.yml")
    with open(config, "w") as out:
        json.dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [
            {"job_name": "agent", "static_configs": [{"targets": [address]}]},
            {"job_name": "found", "http_sd_configs": [{"url": agent + "targets", "refresh_interval": "1s"}]}]}, out)
    log = os.path.join(folder, "prometheus.log")
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}"]
    with started(words, log) as prometheus:
        def asked(query):
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
            return json.loads(got(url))["data"]["result"]
        up = until("Prometheus scrapes the agent", lambda: asked('up{job="agent"} == 1'), prometheus, log)
        slop = until("the books are among its figures", lambda: asked('skinflint_memory_bytes{path="books/slop",job="agent"}'), prometheus, log)
        closings = until("closings grow", lambda: asked('increase(skinflint_agent_closings_total{job="agent"}[1m]) > 0'), prometheus, log)

        def targets():
            active = json.loads(got(f"http://127.0.0.1:{port}/api/v1/targets?state=active"))["data"]["activeTargets"]
            own = [one for one in active if one["scrapePool"] == "found" and one["discoveredLabels"].get("__param_pid") == str(pid)]
            return [one for one in own if one["health"] == "up"]
        found = until("its process is a target", targets, prometheus, log)
        nothing = asked("skinflint_agent_no_such_figure")
    return [(bool(up), "Prometheus scrapes the agent"),
            (bool(slop), f"skinflint_memory_bytes has the books: slop is {slop[0]['value'][1]} bytes"),
            (bool(closings), "closings grow from scrape to scrape"),
            (bool(found), f"/targets tells of process {pid} to http_sd_configs"),
            (not nothing, "a figure that is not there is not found")]


def sent(port, body):
    """The status of a request of our own to the Collector."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1development/profiles", gzip.compress(body),
                                     {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def collector_config(folder, port):
    path = os.path.join(folder, "collector.yaml")
    with open(path, "w") as out:
        json.dump({"receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
                   "exporters": {"debug": {"verbosity": "detailed", "sampling_initial": 1000}},
                   "service": {"telemetry": {"metrics": {"level": "none"}},
                               "pipelines": {"profiles": {"receivers": ["otlp"], "exporters": ["debug"]}}}}, out)
    return path


def check_collector(agent, collector, log, port):
    """[(held, sentence)] of what the Collector says it took."""
    def said():
        with open(log, errors="replace") as out:
            return out.read()
    def figure(name):
        return figures(agent).get(f'skinflint_agent_push_{name}_total{{receiver="otlp-1"}}')
    text = until("the Collector took a profile of this process", lambda: said() if "service.name: Str(real-service)" in said() else "", collector, log)
    taken = until("the agent knows that it was taken", lambda: figure("sent"), collector, log)
    refused = figure("refused")
    types = [one for one in ("inuse_space", "inuse_objects", "alloc_space", "slop_space", "pinned_space", "mapped_space") if one in text]
    return [(True, "the Collector took profiles of the process, by its service"),
            (len(types) == 6, f"with the types {', '.join(types)}"),
            ("/libskinflint.so" in text and "build_id" in text, "and the names and build ids of its files"),
            (refused == 0, f"{taken:.0f} were sent, {refused:.0f} refused"),
            (sent(port, b"\x0a\xff\xff") == 400, "a profile that is spoilt is refused"),
            (sent(port, b"") == 200, "an empty one is not")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skinflint")
    parser.add_argument("collector")
    parser.add_argument("--only", choices=["prometheus", "collector"])
    arguments = parser.parse_args()
    missing = [one for one in (arguments.skinflint, arguments.collector if arguments.only != "prometheus" else "sh",
                               "prometheus" if arguments.only != "collector" else "sh") if not shutil.which(one)]
    if missing:
        print(f"not there: {', '.join(missing)} (apt-get install prometheus; go build in tests/agent/collector)", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sockets = os.path.join(folder, "s")
        os.mkdir(sockets, 0o700)
        environment = {**os.environ, "XDG_RUNTIME_DIR": sockets, "PYTHONMALLOC": "malloc", "OTEL_SERVICE_NAME": "real-service"}
        words = [os.path.abspath(arguments.skinflint), "exec", "--profile=64K", "--profile-file", "/dev/null", "--", "/usr/bin/python3", "-c", PROGRAM]
        program = stack.enter_context(started(words, os.path.join(folder, "program.log"), env=environment, stdin=subprocess.PIPE,
                                              stdout=subprocess.PIPE))
        if program.stdout.readline() != b"held\n":
            sys.exit("the program did not begin")
        words, log, port = [os.path.abspath(arguments.skinflint), "agent", "--port", "0", "--interval", "1"], os.path.join(folder, "collector.log"), free_port()
        if arguments.only != "prometheus":
            config = collector_config(folder, port)
            collector = stack.enter_context(started([os.path.abspath(arguments.collector), f"--config=file:{config}",
                                         "--feature-gates=service.profilesSupport"], log))
            words += ["--push", f"otlp=http://127.0.0.1:{port}"]
        running = stack.enter_context(started(words, os.path.join(folder, "agent.log"), stdout=subprocess.PIPE))
        agent = running.stdout.readline().decode().strip()
        verdicts = []
        if arguments.only != "collector":
            verdicts += check_prometheus(agent, program.pid, folder)
        if arguments.only != "prometheus":
            verdicts += check_collector(agent, collector, log, port)
    for held, sentence in verdicts:
        print(f"{'held     ' if held else 'NOT HELD '} {sentence}")
    return 0 if all(held for held, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
