"""AgentBay's own SDK against the test cloud: what our client uses of the wire must be what the SDK means by it.

Pinned: wuying-agentbay-sdk==0.22.3. Called as `agentbay.py MARK` with AGENTBAY_API_KEY, AGENTBAY_ENDPOINT and
SSL_CERT_FILE set; MARK is a label of this run. Prints `judged` when everything is as it should be.
"""

import sys
from importlib.metadata import version

sys.path.pop(0)  # This file has the name of the package.
from agentbay import AgentBay, CreateSessionParams

MARK = sys.argv[1]


def check(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"{what}: got {got!r}, wanted {wanted!r}")


def fine(what, result):
    if not result.success:
        raise SystemExit(f"{what}: {result.error_message}")
    return result


bay = AgentBay()
params = CreateSessionParams(labels={"run": MARK, "n": "1"}, image_id="linux_latest", idle_release_timeout=120)
session = fine("create", bay.create(params)).session
other = fine("create", bay.create(CreateSessionParams(labels={"run": MARK, "n": "2"}, image_id="linux_latest"))).session

got = fine("get", bay.get(session.session_id)).session
check("get: id", got.session_id, session.session_id)
check("get: token", got.token, session.token)
check("get: link", got.link_url, session.link_url)
check("get: server of shell", got._get_mcp_server_for_tool("shell"), "wuying_shell")
check("get: nobody", bay.get("session-nobody").success, False)
check("status", fine("status", session.get_status()).status, "RUNNING")
check("labels", fine("labels", session.get_labels()).data, {"run": MARK, "n": "1"})

ids = lambda result: [entry["sessionId"] for entry in result.session_ids]
listed = fine("list", bay.list({"run": MARK, "n": "1"}))
check("list: ids", ids(listed), [session.session_id])
check("list: status", listed.session_ids[0]["sessionStatus"], "RUNNING")
first = fine("list", bay.list({"run": MARK}, limit=1))
second = fine("list", bay.list({"run": MARK}, page=2, limit=1))
check("list: pages", sorted(ids(first) + ids(second)), sorted([session.session_id, other.session_id]))
check("list: total", (first.total_count, second.total_count), (2, 2))
check("list: last page", second.next_token or "", "")
check("list: by status", ids(fine("list", bay.list({"run": MARK}, status="PAUSED"))), [])

ran = session.command.execute_command("echo out; echo err >&2; exit 3", timeout_ms=10000)
check("command", (ran.success, ran.exit_code, ran.stdout, ran.stderr), (False, 3, "out\n", "err\n"))
ran = fine("command", session.command.execute_command("printf '%s' \"$WORD\"; pwd", cwd="/tmp", envs={"WORD": "hi "}))
check("command", (ran.exit_code, ran.stdout, ran.stderr), (0, "hi /tmp\n", ""))
ran = session.command.execute_command("sleep 30; echo late > /tmp/late", timeout_ms=1000)
check("command: too long", ran.success, False)

files = session.file_system
text = "line\nßäö ✓ \"quoted\" \\ back\n" * 5000
fine("write", files.write_file("/tmp/judged/deep/a.txt", text))
check("read", fine("read", files.read_file("/tmp/judged/deep/a.txt")).content, text)
fine("append", files.write_file("/tmp/judged/deep/a.txt", "end", mode="append"))
size = len((text + "end").encode())
info = fine("info", files.get_file_info("/tmp/judged/deep/a.txt")).file_info
check("info", (info["size"], info["isDirectory"]), (size, False))
fine("command", session.command.execute_command("printf '\\000\\377\\012' > /tmp/judged/b"))
check("read: bytes", fine("read", files.read_file("/tmp/judged/b", format="bytes")).content, b"\x00\xff\n")
entries = fine("list_directory", files.list_directory("/tmp/judged")).entries
check("entries", sorted((e.name, e.is_directory) for e in entries), [("b", False), ("deep", True)])
check("read: nothing", files.read_file("/tmp/judged/none").success, False)

metrics = fine("metrics", session.get_metrics()).metrics
if not (metrics.cpu_count > 0 and 0 < metrics.mem_used < metrics.mem_total and 0 < metrics.disk_used < metrics.disk_total):
    raise SystemExit(f"metrics: {metrics.__dict__}")

fine("keep_alive", session.keep_alive())
token = session.token
check("pause", fine("pause", session.beta_pause(timeout=30, poll_interval=0.1)).status, "PAUSED")
check("paused: status", fine("status", session.get_status()).status, "PAUSED")
check("paused: command", session.command.execute_command("true").success, False)
check("paused: delete", session.delete().success, False)
check("resume", fine("resume", session.beta_resume(timeout=30, poll_interval=0.1)).status, "RUNNING")
session = fine("get", bay.get(session.session_id)).session
check("resumed: token is new", session.token != token, bool(token))
ran = session.command.execute_command("wc -c < /tmp/judged/deep/a.txt; ls /tmp/late")
check("resumed: files are there, what was killed is not", (ran.exit_code, ran.stdout), (2, f"{size}\n"))

for one in (session, other):
    fine("delete", bay.delete(one))
check("deleted: list", ids(fine("list", bay.list({"run": MARK}))), [])
check("deleted: get", bay.get(session.session_id).success, False)
print("judged", version("wuying-agentbay-sdk"))
