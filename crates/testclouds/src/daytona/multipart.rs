//! Forms with files in them, as far as clients send them.

use super::ask::{Ask, No};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

pub(super) fn parts(ask: &Ask) -> Result<Vec<Part>, No> {
    let kind = ask.header("content-type").unwrap_or("");
    let boundary = kind.strip_prefix("multipart/form-data; boundary=");
    let boundary = boundary.ok_or_else(|| No::violates(format!("a form sent as `{kind}`")))?;
    read(&ask.body, boundary.trim_matches('"')).ok_or_else(|| No::violates("a form that can't be read"))
}

fn read(body: &[u8], boundary: &str) -> Option<Vec<Part>> {
    let line = format!("\r\n--{boundary}");
    let mut rest = body.strip_prefix(&line.as_bytes()[2..])?;
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = find(part, line.as_bytes())?;
        let (whole, after) = part.split_at(end);
        let head_end = find(whole, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&whole[..head_end]).ok()?;
        let name = head.split("name=\"").nth(1)?.split('"').next()?;
        parts.push(Part { name: name.to_owned(), content: whole[head_end + 4..].to_vec() });
        rest = &after[line.len()..];
    }
    rest.starts_with(b"--").then_some(parts)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_to_its_end() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n\r\n--b\r\nX: y\r\n\
                     Content-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n\r\n--b--\r\n";
        let part = |name: &str, content: &[u8]| Part { name: name.to_owned(), content: content.to_vec() };
        assert_eq!(read(body, "b"), Some(vec![part("a", b"1\r\n"), part("f", b"")]));
        assert_eq!(read(&body[..body.len() - 4], "b"), None);
    }
}
