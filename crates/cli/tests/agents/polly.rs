//! An agent that speaks ACP and does as it is told: by its messages, and by files beside its program.

use crate::scene::Scene;
use std::path::PathBuf;

/// Its conversations are in its home, so that another process can go on with them.
const POLLY: &str = r#"#!/bin/bash
here=${0%/*}
[ "$1" = --version ] && { echo 'polly v3.1.4 (of today)'; exit 0; }
[ -e "$here/exit" ] && exit 9
say() { printf '%s\n' "$1"; }
answer() { say '{"jsonrpc":"2.0","id":'"$id"',"result":'"$1"'}'; }
text() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"'"$session"'","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$1"'"}}}}'; }
ask() { say '{"jsonrpc":"2.0","id":"q1","method":"session/request_permission","params":{"sessionId":"'"$session"'","toolCall":{"toolCallId":"c1","title":"to '"$1"'","kind":"'"$1"'"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}}'; }
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}' ;;
    *'"session/load"'*)
      session=${line#*\"sessionId\":\"}; session=${session%%\"*}
      answer null ;;
    *'"session/new"'*)
      if [ -e "$here/locked" ]; then
        say '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32000,"message":"Authentication required"}}'
      else
        session=s$$-$RANDOM; printf 0 > ~/.polly-$session
        answer '{"sessionId":"'"$session"'"}'
      fi ;;
    *'"session/prompt"'*)
      turn=$(( $(cat ~/.polly-$session) + 1 )); printf %s "$turn" > ~/.polly-$session
      case $line in
        *DEAF*) text listening; trap '' INT TERM HUP; while :; do read -r -t 60 _ </dev/zero; done ;;
        *WAIT*) text waiting; while IFS= read -r more; do case $more in *'"session/cancel"'*) break ;; esac; done
          answer '{"stopReason":"cancelled"}'; continue ;;
        *RENEW*) printf '{"token":"new"}' > ~/.polly/token.json ;;
        *MODE*) text "$(stat -c %a ~/.polly/token.json) " ;;
        *HOME*) text "$(ls -A ~ | grep -v '^.polly-' | tr '\n' ' ')" ;;
        *ASK*)
          kind=${line##*ASK:}; kind=${kind%%[^a-z_]*}
          ask "$kind"
          while IFS= read -r more; do
            case $more in *'"session/cancel"'*) ;; *'"q1"'*) break ;; esac
          done
          case $more in *'"y"'*) text 'allowed ' ;; *) text 'denied ' ;; esac ;;
      esac
      text "turn=$turn"
      answer '{"stopReason":"end_turn"}' ;;
  esac
done
"#;

pub(crate) struct Polly {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) scene: Scene,
}

impl Polly {
    /// `settings` come before its own table, `own` go into it.
    pub(crate) fn new(settings: &str, own: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = program(dir.path().join("polly"));
        let described =
            format!("[agent.polly]\ncommand = ['{}']\ntransport = 'acp'\nresume = true\n{own}\n", program.display());
        let scene = Scene::plain("polly", &format!("{settings}\n{described}"));
        Self { dir, scene }
    }

    /// A file beside its program, which changes what it does.
    pub(crate) fn put(&self, name: &str) {
        std::fs::write(self.dir.path().join(name), "").unwrap();
    }

    pub(crate) fn take(&self, name: &str) {
        std::fs::remove_file(self.dir.path().join(name)).unwrap();
    }

    pub(crate) fn kill_agent(&self) {
        for pid in self.scene.processes() {
            stead_term::proc::signal(pid, rustix::process::Signal::KILL);
        }
    }
}

pub(crate) fn program(path: PathBuf) -> PathBuf {
    write_program(path, POLLY)
}

pub(crate) fn write_program(path: PathBuf, text: &str) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}
