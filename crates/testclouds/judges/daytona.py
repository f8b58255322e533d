"""Daytona's own SDK against the test cloud, for the calls that stead's client makes or stands on.

Reads DAYTONA_API_URL and DAYTONA_API_KEY; ends with 0 when every value is the right one.
"""

import hashlib
import time
import warnings

warnings.simplefilter("ignore", DeprecationWarning)

from daytona import (  # noqa: E402
    CreateSandboxFromSnapshotParams,
    Daytona,
    DaytonaError,
    FileUpload,
    ListSandboxesQuery,
    SandboxState,
    SessionExecuteRequest,
)
from daytona.common.pty import PtySize  # noqa: E402

DEADLINE = 60


def same(what, seen, expected):
    if seen != expected:
        raise AssertionError(f"{what}: {seen!r} and not {expected!r}")


def refuses(what, call, status):
    try:
        call()
    except DaytonaError as error:
        same(f"{what}: status", error.status_code, status)
        return error
    raise AssertionError(f"{what}: not refused")


daytona = Daytona()

# Lifecycle.
labels = {"stead": "judge", "name": "one"}
made = CreateSandboxFromSnapshotParams(labels=dict(labels), env_vars={"JUDGE": "yes"}, auto_stop_interval=7)
sandbox = daytona.create(made)
same("state after create", sandbox.state, SandboxState.STARTED)
same("auto-stop", sandbox.auto_stop_interval, 7)
same("label", sandbox.labels["name"], "one")
others = [daytona.create(CreateSandboxFromSnapshotParams(labels={"stead": "judge", "name": str(n)})) for n in range(4)]

same("get by id", daytona.get(sandbox.id).id, sandbox.id)
same("list by one label", len(list(daytona.list(ListSandboxesQuery(labels={"stead": "judge"})))), 5)
same("list by labels", [one.id for one in daytona.list(ListSandboxesQuery(labels=labels, limit=100))], [sandbox.id])
same("list of none", list(daytona.list(ListSandboxesQuery(labels={"stead": "nobody"}))), [])
refuses("get of none", lambda: daytona.get("no-such-sandbox"), 404)

sandbox.set_autostop_interval(30)
sandbox.refresh_data()
same("auto-stop set", sandbox.auto_stop_interval, 30)
before = sandbox.last_activity_at
sandbox.refresh_activity()
sandbox.refresh_data()
same("activity moved", sandbox.last_activity_at > before, True)
same("set labels", sandbox.set_labels({**labels, "more": "yes"})["more"], "yes")

# Commands.
ran = sandbox.process.exec("echo out; echo err >&2; echo $JUDGE-$MINE; pwd; exit 3", cwd="/tmp", env={"MINE": "too"})
same("exit code", ran.exit_code, 3)
same("output", ran.result, "out\nerr\nyes-too\n/tmp\n")
same("a command that can't start", sandbox.process.exec("true", cwd="/no/such/place").exit_code, -1)
late = refuses("a command that takes too long", lambda: sandbox.process.exec("sleep 1000", timeout=1), 408)
same("its code", late.code, "PROCESS_EXECUTION_TIMEOUT")

# Sessions.
sandbox.process.create_session("s1")
refuses("a session twice", lambda: sandbox.process.create_session("s1"), 409)
sandbox.process.execute_session_command("s1", SessionExecuteRequest(command="cd /opt; export KEPT=1"))
ran = sandbox.process.execute_session_command("s1", SessionExecuteRequest(command="pwd; echo $KEPT; echo e >&2; false"))
same("session", (ran.exit_code, ran.stdout, ran.stderr), (1, "/opt\n1\n", "e\n"))
started = sandbox.process.execute_session_command("s1", SessionExecuteRequest(command="echo later", run_async=True))
until = time.monotonic() + DEADLINE
while sandbox.process.get_session_command("s1", started.cmd_id).exit_code is None:
    same("a session's command ends in time", time.monotonic() < until, True)
    time.sleep(0.02)
same("its logs", sandbox.process.get_session_command_logs("s1", started.cmd_id).stdout, "later\n")
same("its commands", len(sandbox.process.get_session("s1").commands), 3)
sandbox.process.delete_session("s1")
same("sessions", sandbox.process.list_sessions(), [])

# Files.
content = bytes(range(256)) * 4096
sandbox.fs.create_folder("/opt/judge", "755")
sandbox.fs.upload_file(content, "/opt/judge/deep/one.bin")
sandbox.fs.upload_files([FileUpload(b"two", "/opt/judge/two"), FileUpload(b"three\r\n", "/opt/judge/three")])
same("download", sandbox.fs.download_file("/opt/judge/deep/one.bin"), content)
same("list", sorted((f.name, f.is_dir) for f in sandbox.fs.list_files("/opt/judge")),
     [("deep", True), ("three", False), ("two", False)])
same("info", sandbox.fs.get_file_info("/opt/judge/three").size, 7)
seen = sandbox.process.exec("sha256sum < /opt/judge/deep/one.bin").result.split()[0]
same("seen inside", seen, hashlib.sha256(content).hexdigest())
refuses("info of none", lambda: sandbox.fs.get_file_info("/opt/judge/none"), 404)
refuses("a move over one that is there", lambda: sandbox.fs.move_files("/opt/judge/two", "/opt/judge/three"), 409)
sandbox.fs.move_files("/opt/judge/two", "/opt/judge/four")
sandbox.fs.delete_file("/opt/judge/three")
same("list after", sorted(f.name for f in sandbox.fs.list_files("/opt/judge")), ["deep", "four"])

# Terminals.
pty = sandbox.process.create_pty_session("p1", cwd="/tmp", envs={"OWN": "mine"}, pty_size=PtySize(rows=40, cols=100))
same("terminals", [one.id for one in sandbox.process.list_pty_sessions()], ["p1"])
pty.resize(PtySize(rows=50, cols=120))
same("size", (lambda i: (i.rows, i.cols))(sandbox.process.get_pty_session_info("p1")), (50, 120))
pty.send_input("stty size; pwd; echo is-$OWN; echo 'en''d'\n")
said = b""
for data in pty:
    said += data
    if b"end\r\n" in said:
        break
for expected in (b"50 120\r\n", b"/tmp\r\n", b"is-mine\r\n"):
    same(f"{expected!r} is said", expected in said, True)
pty.send_input("exit 5\n")
same("exit code of a terminal", pty.wait().exit_code, 5)
pty.disconnect()
pty = sandbox.process.create_pty_session("p2")
other = sandbox.process.connect_pty_session("p2")
refuses("a terminal twice", lambda: sandbox.process.create_pty_session("p2"), 409)
sandbox.process.kill_pty_session("p2")
for one in (pty, other):
    same("exit code of one that is killed", one.wait().exit_code, 137)
    one.disconnect()
same("no terminals", sandbox.process.list_pty_sessions(), [])

metrics = sandbox.get_metrics_latest()
same("metrics", (metrics.cpu_count, 0 < metrics.mem_used < metrics.mem_total, 0 < metrics.disk_used), (1, True, True))

# Stop, archive, start, delete.
sandbox.stop()
same("state after stop", sandbox.state, SandboxState.STOPPED)
refuses("a command in one that is stopped", lambda: sandbox.process.exec("true"), 400)
sandbox.archive()
until = time.monotonic() + DEADLINE
while daytona.get(sandbox.id).state != SandboxState.ARCHIVED:
    same("it is archived in time", time.monotonic() < until, True)
    time.sleep(0.02)
sandbox.start()
same("state after start", sandbox.state, SandboxState.STARTED)
same("its disk", sandbox.fs.download_file("/opt/judge/deep/one.bin"), content)
refuses("an archive of one that runs", sandbox.archive, 400)
for one in [sandbox, *others]:
    one.delete(wait=True)
same("none is left", list(daytona.list()), [])
print("the SDK is content")
