use super::is_whole;

#[test]
fn texts_that_end_with_their_last_line_are_whole() {
    for text in [
        "",
        "false | true | (exit 3)",
        "exec 2>errors.txt",
        "echo 'a\nb' | grep -q b",
        "false | true # it's a comment",
        "cat <<EOF | (exit 4)\nit's $(\nEOF",
        "cat <<-'E F' | cat\n\ta\\\n\tE F\necho x",
        "cat <<A <<B\n1\nA\n2\nB",
        "cat <<A | (b; c) | tee >(d)\n1\nA",
        "if true; then a | b; elif c; then d; fi",
        "case x in a) b | c;; (*) d;; esac",
        "for i in 1 2; do a | b; done; while c | d; do e; done",
        "echo \"$(a | b \"c\")\" `d | e` ${f:-g} ${#h} $'it\\'s' $\"i\" | j",
        "a=(1 2 '3') b=$((1 + 2)); ((a += 1)) || c | d",
        "[[ a =~ (b|c) ]] | d >|e 2>&1 <<<f &",
        "f() { a | b; }",
        "diff <(a | b) <(c) | d\n\n",
        "echo if | cat; echo done | { cat; }",
        "x=1 env | cat; echo \"$(if a; then b; fi)\" | c",
    ] {
        assert!(is_whole(text.as_bytes()), "{text}");
    }
}

#[test]
fn texts_that_would_take_what_follows_are_not() {
    for text in [
        "a |",
        "a | b &&",
        "a ||\n\n# and\n",
        "a |&",
        "a \\",
        "echo 'a",
        "echo \"a $(b\"",
        "a | `b",
        "${a",
        "cat <<EOF | b",
        "cat <<EOF | b\nEO\n",
        "cat <<EOF | b\nc\\\nEOF",
        "cat <<A <<B\n1\nA\n2\n",
        "cat <<A | (b\n1\nA\n)",
        "(a | b",
        "a | b)",
        "f()",
        "f ( )\n",
        "function f",
        "for x in a;",
        "select x in a;",
        "while a",
        "if a; then b | c",
        "{ a | b",
        "case x in a | b)",
        "[[ a",
        "$(case a in b) c;; esac) | d",
        "((1 <",
        "a=(1",
        "{ echo } | cat",
        "if a; then b | c; echo fi",
    ] {
        assert!(!is_whole(text.as_bytes()), "{text}");
    }
}
