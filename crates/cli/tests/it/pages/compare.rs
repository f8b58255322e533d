//! Whether what was printed is what a page says, where names, times and sizes differ from run to run.

/// What is different, if anything that matters is.
pub(super) fn difference(page: &[String], printed: &[String]) -> Option<String> {
    let (page, printed) = (trimmed(page), trimmed(printed));
    let same = page.len() == printed.len() && page.iter().zip(printed).all(|(page, line)| is_like(page, line));
    if same {
        return None;
    }
    Some(format!("--- the page says:\n{}\n--- printed is:\n{}", page.join("\n"), printed.join("\n")))
}

/// Without empty lines at the end.
fn trimmed(lines: &[String]) -> &[String] {
    let end = lines.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    lines.get(..end).unwrap_or_default()
}

/// `...` on a page is anything within a line.
fn is_like(page: &str, line: &str) -> bool {
    let (page, line) = (generic(page), generic(line));
    let mut parts = page.split("...");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

/// A line with what differs from run to run replaced by what it is.
fn generic(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    let mut out: Vec<&str> = Vec::new();
    for word in words {
        match word {
            "ago" if out.last() == Some(&"TIME") => {}
            "B" | "KiB" | "MiB" => {
                out.pop();
                out.push("SIZE");
            }
            // Not measured yet.
            "-" => out.push("SIZE"),
            "now" => out.push("TIME"),
            _ if is_time(word) => out.push("TIME"),
            _ if is_name(word) => out.push("NAME"),
            _ => out.push(word),
        }
    }
    out.join(" ")
}

/// `9s`, `120ms`.
fn is_time(word: &str) -> bool {
    let number = word.strip_suffix("ms").or_else(|| word.strip_suffix('s')).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// `web-0123abcd`: made by us, out of eight or more digits.
fn is_name(word: &str) -> bool {
    let digits = word.rsplit_once('-').map_or("", |(_, digits)| digits);
    digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn names_times_and_sizes_may_differ_and_nothing_else() {
    let cases = [
        ("a b", "a  b", true),
        ("a b", "a c", false),
        ("web-0123abcd  9s  now  84 KiB", "web-ffffffff 12s 1s ago 4 B", true),
        ("web-0123abcd  9s  now  84 KiB  no", "web-ffffffff 12s now - no", true),
        ("web-0123abcd", "web-0123", false),
        ("{\"id\":\"cmd-...\",...,\"exit_code\":0,...}", "{\"id\":\"cmd-1\",\"x\":2,\"exit_code\":0,\"y\":3}", true),
        ("{\"id\":\"cmd-...\",...,\"exit_code\":0,...}", "{\"id\":\"cmd-1\",\"x\":2,\"exit_code\":1,\"y\":3}", false),
        ("...", "anything", true),
        ("", "", true),
    ];
    for (page, line, like) in cases {
        assert_eq!(is_like(page, line), like, "{page} and {line}");
    }
}
