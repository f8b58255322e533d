//! The prompt that a person types at: a small shell of its own on a terminal of its own, so that the shell people and
//! agents share is never occupied by somebody who thinks. It reads a line, sees whether it is a whole command, hands it
//! over, and waits until it is told to prompt again.
//!
//! ```text
//! we, on its control FIFO:   7                  prompt for the seventh line; said twice is said once
//! it, on its reply FIFO:     R 7 \0             reading it now
//!                            L 7 TEXT \0        this is it
//!                            E 7 \0             end of file instead
//! ```
//!
//! Nothing is ever taken from what it shows.

use crate::shell::Dialect;
use crate::state::restore::{self, Extent};
use crate::state::{Bytes, ShellState};
use crate::word::quote;

/// What a shell shows that has no `PS1`.
const DEFAULT: &str = r"\w \$ ";

/// Typed at the prompt, it makes it show itself anew with what was typed so far: the directory is another one, say.
pub const REDRAW: &[u8] = b"\x1b[9002~";

/// The program of the prompt. Its arguments are the directory of its files and the file of its history.
pub fn script(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Bash => BASH,
        Dialect::Posix => POSIX,
    }
}

/// Keys are bound in pairs, for bash can't leave a line from within a key: the first key keeps what was typed and empties
/// the line, the second accepts it. The terminal has no interrupt character while this runs, so Ctrl-C is a key, too. What
/// readline showed of the empty line is taken back.
const BASH: &str = r#"
d=$1 hist=$2 n=0
exec 3<>"$d/pc" 4<>"$d/pl"
set -o history +H
HISTFILE= HISTSIZE=2000 HISTCONTROL=ignoredups
[[ -r $hist ]] && history -r "$hist" && history -w "$hist"
keep() { mode=$1 kept=$READLINE_LINE READLINE_LINE= READLINE_POINT=0; }
back() { local lines=${1//[!$'\n']/}; printf '\e[%dA\r\e[J' $(( ${#lines} + 1 )); }
{
bind -x '"\e[9001~": keep redraw'
bind '"\e[9002~": "\e[9001~\C-m"'
bind -x '"\e[9003~": keep cancel'
bind '"\C-c": "\e[9003~\C-m"'
} 2>/dev/null
whole() {
  local said
  said=$(LC_ALL=C "$BASH" -O extglob -n -c "$1" 2>&1 </dev/null)
  case $said in
  *'unexpected end of file'* | *'unexpected EOF'* | *'delimited by end-of-file'*) return 1 ;;
  esac
  local tail=${1##*[!\\]}
  (( ${#tail} % 2 == 0 ))
}
while IFS= read -r k <&3; do
  (( k > n )) || continue
  n=$k start= text=
  while :; do
    if [[ -z $text ]]; then
      cd -- "$(<"$d/at")" 2>/dev/null
      p=$( . "$d/ps" >/dev/null 2>&1 </dev/null; \builtin trap - EXIT DEBUG ERR RETURN; \builtin printf '%s.' "${PS1@P}" 2>/dev/null )
      if [[ $p == *. ]]; then p=${p%.}; else p='$ '; fi
    else
      p='> '
    fi
    mode=
    printf 'R %s\0' "$n" >&4
    IFS= read -r -e -p "$p" -i "$start" line
    status=$?
    case $mode in
    redraw) back "$p"; start=$kept; continue ;;
    cancel) back "$p"; printf '%s%s^C\n' "${p//[$'\001\002']/}" "$kept"; start= text=; continue ;;
    esac
    start=
    if (( status != 0 )); then
      [[ -n $text ]] && { text=; continue; }
      printf 'E %s\0' "$n" >&4
      break
    fi
    text+=$line
    [[ $text == *[![:space:]]* ]] || { text=; continue; }
    whole "$text" || { text+=$'\n'; continue; }
    history -s -- "$text"
    history -a "$hist" 2>/dev/null
    printf 'L %s %s\0' "$n" "$text" >&4
    break
  done
done
"#;

/// Without line editing but the terminal's own, and without history.
const POSIX: &str = r#"
d=$1 n=0
exec 3<>"$d/pc" 4<>"$d/pl"
while IFS= read -r k <&3; do
  [ "$k" -gt "$n" ] || continue
  n=$k
  while :; do
    printf 'R %s\0' "$n" >&4
    printf '%s $ ' "$(cat "$d/at")"
    if IFS= read -r line; then
      case $line in
      *[![:space:]]*) printf 'L %s %s\0' "$n" "$line" >&4; break ;;
      esac
    else
      printf '\n'
      printf 'E %s\0' "$n" >&4
      break
    fi
  done
done
"#;

/// Sourced before the prompt is worked out, in a process that does nothing else: the shell's state, so that the prompt
/// may call its functions, and the prompt itself.
pub fn setting(state: &ShellState, env: &[(Bytes, Bytes)]) -> Vec<u8> {
    let mut out = restore::script(Dialect::Bash, state, Extent::All, b"");
    let own = state.variables.contains_key(b"PS1".as_slice());
    if !own {
        let given = env.iter().find(|(name, _)| name.0 == b"PS1").map(|(_, value)| value.0.clone());
        out.extend_from_slice(b"\nPS1=");
        out.extend_from_slice(&quote(&given.unwrap_or_else(|| DEFAULT.as_bytes().to_vec())));
        out.push(b'\n');
    }
    // Options that would keep the rest from being said.
    out.extend_from_slice(b"\\builtin set +eunvx\n");
    out
}

/// What the prompt said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Reading(u64),
    Line(u64, Vec<u8>),
    EndOfFile(u64),
}

impl Said {
    fn parse(message: &[u8]) -> Option<Self> {
        let rest = message.get(2..)?;
        let (number, text) = match rest.iter().position(|byte| *byte == b' ') {
            Some(at) => (rest.get(..at)?, rest.get(at + 1..)?),
            None => (rest, &[][..]),
        };
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        match message.get(..2)? {
            b"R " => Some(Self::Reading(number)),
            b"L " => Some(Self::Line(number, text.to_vec())),
            b"E " => Some(Self::EndOfFile(number)),
            _ => None,
        }
    }
}

/// Cuts messages out of what came. What isn't one is passed over.
#[derive(Debug, Default)]
pub struct Messages {
    pending: Vec<u8>,
}

impl Messages {
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    pub fn next_message(&mut self) -> Option<Said> {
        loop {
            let end = self.pending.iter().position(|byte| *byte == 0)?;
            let message: Vec<u8> = self.pending.drain(..=end).collect();
            if let Some(said) = Said::parse(message.get(..end).unwrap_or_default()) {
                return Some(said);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_at_nul_and_nonsense_is_passed_over() {
        let mut messages = Messages::default();
        let bytes = b"R 1\0L 1 echo a\nb  c\0garbage\0L x y\0E 22\0L 3 half";
        for byte in bytes {
            messages.push(&[*byte]);
        }
        let said: Vec<_> = std::iter::from_fn(|| messages.next_message()).collect();
        let want = [Said::Reading(1), Said::Line(1, b"echo a\nb  c".to_vec()), Said::EndOfFile(22)];
        assert_eq!(said, want);
        messages.push(b" line\0");
        assert_eq!(messages.next_message(), Some(Said::Line(3, b"half line".to_vec())));
    }

    #[test]
    fn a_shell_without_a_prompt_gets_one_and_its_own_is_kept() {
        let has = |out: &[u8], what: &str| String::from_utf8_lossy(out).contains(what);
        let mut state = ShellState::default();
        assert!(has(&setting(&state, &[]), r"PS1='\w \$ '"));
        let env = [(Bytes::from("PS1"), Bytes::from("> "))];
        assert!(has(&setting(&state, &env), "PS1='> '"));
        state.variables.insert(Bytes::from("PS1"), Bytes::from("declare -- PS1=\"own \""));
        let out = setting(&state, &env);
        assert!(has(&out, "PS1=\"own \"") && !has(&out, "PS1='> '"), "{}", out.escape_ascii());
    }
}
