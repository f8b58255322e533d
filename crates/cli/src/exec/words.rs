//! Arguments as a command for a shell.

use std::ffi::OsString;
use stead_model::word::quote;

/// One argument is a line, as it is; several are the words of one command, quoted where a shell would read them otherwise.
/// An argument that isn't UTF-8 can't be sent.
pub(super) fn line(words: &[OsString]) -> Result<String, String> {
    let text = |word: &OsString| {
        word.to_str().map(str::to_owned).ok_or_else(|| format!("{} is not UTF-8", word.to_string_lossy()))
    };
    if let [line] = words {
        return text(line);
    }
    let quoted: Result<Vec<String>, String> =
        words.iter().enumerate().map(|(at, word)| text(word).map(|word| quoted(at, &word))).collect();
    Ok(quoted?.join(" "))
}

/// As few quotes as possible, because the command is shown to people in the history.
fn quoted(at: usize, word: &str) -> String {
    const RESERVED: [&str; 19] = [
        "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
        "time", "until", "while", "!", "[[",
    ];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+:,./-".contains(&byte) || (byte == b'=' && at > 0);
    if !word.is_empty() && word.bytes().all(plain) && (at > 0 || !RESERVED.contains(&word)) {
        return word.to_owned();
    }
    // Quoting adds and takes away nothing but ASCII.
    String::from_utf8_lossy(&quote(word.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn of(words: &[&str]) -> String {
        line(&words.iter().map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn one_argument_is_a_line_and_several_are_words() {
        assert_eq!(of(&["cd /tmp && ls *"]), "cd /tmp && ls *");
        assert_eq!(of(&["ls", "-l", "/tmp/a b"]), "ls -l '/tmp/a b'");
        assert_eq!(
            of(&["echo", "", "it's", "$A", "*", "~", "a\nb"]),
            r"echo '' 'it'\''s' '$A' '*' '~' 'a
b'"
        );
    }

    #[test]
    fn the_first_word_is_never_an_assignment_or_a_word_of_the_language() {
        assert_eq!(of(&["A=b", "c=d"]), "'A=b' c=d");
        assert_eq!(of(&["if", "if"]), "'if' if");
        assert_eq!(of(&["!", "x"]), "'!' x");
    }

    #[test]
    fn what_is_not_text_is_refused() {
        assert!(line(&[OsString::from_vec(vec![0xff])]).is_err());
    }

    #[test]
    fn a_shell_reads_the_words_back() {
        let words =
            ["printf", "<%s>", "a  b", "'", "\"", "\\", "`id`", "$(id)", "!x", "#", "{a,b}", "ü", "-n", "a=b", ";"];
        let output = std::process::Command::new("bash").arg("-c").arg(of(&words)).output().unwrap();
        let want: String = words.iter().skip(2).flat_map(|word| ["<", word, ">"]).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), want);
    }
}
