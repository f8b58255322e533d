"""E2B's own SDK against the test cloud: whatever it expects of the real one has to come out here.

Wants E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Prints one line for each thing that it has seen; what is not as it
should be ends it.
"""

import os
import sys
import uuid

from e2b import (
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    Sandbox,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)


def check(name, found, expected):
    if found != expected:
        sys.exit(f"{name}: {found!r}, expected {expected!r}")
    print(f"ok {name}")


def raises(name, kind, call):
    try:
        found = call()
    except kind:
        print(f"ok {name}")
    else:
        sys.exit(f"{name}: {found!r}, expected {kind.__name__}")


def every(query=None, limit=None):
    paginator, found = Sandbox.list(query=query, limit=limit), []
    while paginator.has_next:
        found += paginator.next_items()
    return found


label = uuid.uuid4().hex
strange = {"owner": label, "a b&c=d": "50% + ü/é"}
sandbox = Sandbox.create(metadata=strange, timeout=120, lifecycle={"on_timeout": "pause"}, envs={"GREETING": "hi"})

# What it is.
info = sandbox.get_info()
check("info: id", info.sandbox_id, sandbox.sandbox_id)
check("info: state", info.state, SandboxState.RUNNING)
check("info: metadata", info.metadata, strange)
check("info: lifecycle", info.lifecycle["on_timeout"], "pause")
check("is running", sandbox.is_running(), True)

# Commands.
ran = sandbox.commands.run("echo out; echo err >&2; echo $GREETING $HOME; pwd")
check("run: stdout", ran.stdout, "out\nhi /home/user\n/home/user\n")
check("run: stderr", ran.stderr, "err\n")
check("run: exit code", ran.exit_code, 0)
try:
    sandbox.commands.run("echo so; exit 3")
    sys.exit("run: no exception for exit code 3")
except CommandExitException as error:
    check("run: exit code 3", (error.exit_code, error.stdout), (3, "so\n"))
check("run: as root", sandbox.commands.run("echo $USER $PWD", user="root", cwd="/tmp").stdout, "root /tmp\n")
check("run: environment", sandbox.commands.run("echo $GREETING", envs={"GREETING": "ho"}).stdout, "ho\n")
check("run: a lot", len(sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout), 3000000)
raises("run: no such directory", Exception, lambda: sandbox.commands.run("true", cwd="/nowhere"))
raises("run: time-out", TimeoutException, lambda: sandbox.commands.run("sleep 60", timeout=1))

handle = sandbox.commands.run("sleep 1000", background=True)
check("background: listed", handle.pid in [process.pid for process in sandbox.commands.list()], True)
check("background: killed", handle.kill(), True)
try:
    handle.wait()
    sys.exit("background: no exception for a killed command")
except CommandExitException as error:
    check("background: exit code", error.exit_code, -1)
check("background: killed twice", sandbox.commands.kill(handle.pid), False)

handle = sandbox.commands.run("cat; echo over", background=True, stdin=True)
sandbox.commands.send_stdin(handle.pid, "one\n")
sandbox.commands.send_stdin(handle.pid, "two\n")
sandbox.commands.close_stdin(handle.pid)
check("stdin", handle.wait().stdout, "one\ntwo\nover\n")

handle = sandbox.commands.run("read line; echo $line; exit 5", background=True, stdin=True)
handle.disconnect()
again = sandbox.commands.connect(handle.pid)
sandbox.commands.send_stdin(handle.pid, "late\n")
try:
    again.wait()
    sys.exit("connect: no exception for exit code 5")
except CommandExitException as error:
    check("connect: the rest of its output", (error.stdout, error.exit_code), ("late\n", 5))

# Files.
binary = bytes(range(256)) * 1000
check("write", sandbox.files.write("/home/user/deep/down/file", binary).path, "/home/user/deep/down/file")
check("read", bytes(sandbox.files.read("/home/user/deep/down/file", format="bytes")), binary)
check("seen from inside", sandbox.commands.run("wc -c < deep/down/file").stdout.strip(), str(len(binary)))
sandbox.files.write("deep/text", "über\n", use_octet_stream=True)
check("read text", sandbox.files.read("deep/text"), "über\n")
entries = {entry.name: (entry.type.value, entry.size) for entry in sandbox.files.list("deep") if entry.name == "text"}
check("list", entries, {"text": ("file", 6)})
check("exists", (sandbox.files.exists("deep/text"), sandbox.files.exists("deep/none")), (True, False))
check("rename", sandbox.files.rename("deep/text", "deep/moved").path, "/home/user/deep/moved")
check("make_dir", (sandbox.files.make_dir("new/dir"), sandbox.files.make_dir("new/dir")), (True, False))
sandbox.files.remove("deep/moved")
raises("read what is gone", FileNotFoundException, lambda: sandbox.files.read("deep/moved"))

# Lists.
others = [Sandbox.create(metadata={"owner": label, "n": str(n)}, timeout=60) for n in range(3)]
ids = [sandbox.sandbox_id] + [other.sandbox_id for other in others]
query = SandboxQuery(metadata={"owner": label})
check("list by metadata", sorted(found.sandbox_id for found in every(query)), sorted(ids))
check("list by strange metadata", [found.sandbox_id for found in every(SandboxQuery(metadata=strange))], ids[:1])
check("list in pages", len(every(query, limit=1)), 4)
check("pause", Sandbox.pause(ids[1]), True)
check("pause what sleeps", Sandbox.pause(ids[1]), False)
paused = SandboxQuery(metadata={"owner": label}, state=[SandboxState.PAUSED])
check("list what sleeps", [found.sandbox_id for found in every(paused)], ids[1:2])
check("kill", [other.kill() for other in others], [True, True, True])
check("kill what is gone", others[0].kill(), False)
raises("info of what is gone", SandboxNotFoundException, others[0].get_info)
raises("connect to what is gone", SandboxNotFoundException, lambda: Sandbox.connect(ids[1]))
raises("wrong key", AuthenticationException, lambda: Sandbox.list(api_key="e2b_0").next_items())

# Time.
sandbox.set_timeout(600)
left = sandbox.get_info().end_at - sandbox.get_info().started_at
check("set_timeout", left.total_seconds() > 590, True)

# Numbers.
with open("/proc/meminfo") as file:
    total = int(file.readline().split()[1]) * 1024
metrics = sandbox.get_metrics()
check("metrics", (len(metrics) > 0, metrics[-1].cpu_count, metrics[-1].mem_total), (True, 2, total))

# Sleep.
counter = sandbox.commands.run("echo kept > kept; while :; do echo x >> ticks; sleep 0.1; done", background=True)
check("pause: itself", sandbox.pause(), True)
check("paused", Sandbox.get_info(sandbox.sandbox_id).state, SandboxState.PAUSED)
check("paused: not running", sandbox.is_running(), False)
awake = Sandbox.connect(sandbox.sandbox_id, timeout=60)
check("connect: the same", awake.sandbox_id, sandbox.sandbox_id)
check("connect: files", awake.files.read("kept"), "kept\n")
check("connect: programs", counter.pid in [process.pid for process in awake.commands.list()], True)
check("connect: kill", awake.commands.kill(counter.pid), True)
raises("the token of before", AuthenticationException, lambda: sandbox.commands.run("true"))
check("the end", awake.kill(), True)
raises("command in what is gone", Exception, lambda: awake.commands.run("true"))
print(f"all of it, with {os.environ.get('E2B_API_URL')}")
