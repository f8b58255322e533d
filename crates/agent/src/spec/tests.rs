use super::*;

#[test]
fn five_are_built_in_and_two_of_them_on_a_terminal_too() {
    let specs = Specs::parse(include_str!("builtin.toml")).unwrap();
    let all: Vec<_> = specs.iter().map(|spec| (spec.name.as_str(), spec.transport.name())).collect();
    let expected = [
        ("auggie", "acp"),
        ("claude", "jsonl"),
        ("claude-tui", "pty"),
        ("codex", "jsonl"),
        ("codex-tui", "pty"),
        ("gemini", "acp"),
        ("opencode", "acp"),
    ];
    assert_eq!(all, expected);
    assert!(specs.iter().all(|spec| !spec.install.is_empty() && spec.takes_model()));
}

#[test]
fn a_command_has_a_model_and_a_conversation_where_they_are_asked_for() {
    let specs = Specs::built_in();
    let claude = specs.get("claude").unwrap();
    let words = claude.words("/w", Some("sonnet"), Some("s1"));
    assert!(words.ends_with(&["--model", "sonnet", "--resume", "s1"].map(str::to_owned)), "{words:?}");
    assert_eq!(claude.words("/w", None, None), claude.command);
    let codex = specs.get("codex").unwrap();
    assert_eq!(codex.words("/w", Some("m"), Some("t")), codex.command, "both are messages");
}

#[test]
fn what_stands_for_something_is_exchanged_for_it() {
    let specs = Specs::built_in();
    let words = specs.get("codex-tui").unwrap().words("/a \"b\"", None, None);
    assert!(words.contains(&r#"projects={"/a \"b\""={trust_level="trusted"}}"#.to_owned()), "{words:?}");
    let file = &specs.get("claude").unwrap().files[0];
    let text = file.text("/w", |name| (name == "ANTHROPIC_API_KEY").then(|| "sk-ant-dummy-000000000000".to_owned()));
    let text: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(text["customApiKeyResponses"]["approved"][0], "t-dummy-000000000000");
    assert_eq!(text["projects"]["/w"]["hasTrustDialogAccepted"], true);
    assert!(serde_json::from_str::<serde_json::Value>(&file.text("/w", |_| None)).is_ok());
}

#[test]
fn a_configuration_adds_agents_and_changes_some() {
    let mut specs = Specs::built_in();
    let more = r#"
        [codex]
        command = ["/opt/codex", "app-server"]
        [toy]
        command = ["toy"]
        transport = "pty"
        screen = { prompt = "^toy> $", echo = "toy> " }
    "#;
    specs.extend(&more.parse().unwrap()).unwrap();
    let codex = specs.get("codex").unwrap();
    assert_eq!(
        (codex.command[0].as_str(), codex.transport, codex.resume.by_message()),
        ("/opt/codex", Transport::Codex, true)
    );
    assert_eq!(specs.get("toy").unwrap().screen.as_ref().unwrap().rows, 200);
}

#[test]
fn what_makes_no_sense_is_refused_with_its_name() {
    let cases = [
        ("[a]\ntransport = 'acp'", "missing field `command`"),
        ("[a]\ncommand = []\ntransport = 'acp'", "`command` names no program"),
        ("[a]\ncommand = ['a']\ntransport = 'tcp'", "`transport` is `acp`, `jsonl` or `pty`, not `tcp`"),
        ("[a]\ncommand = ['a']\ntransport = 'jsonl'", "`dialect` of transport `jsonl` is `codex` or `claude`"),
        ("[a]\ncommand = ['a']\ntransport = 'acp'\ndialect = 'codex'", "only transport `jsonl` has a `dialect`"),
        ("[a]\ncommand = ['a']\ntransport = 'pty'", "transport `pty` needs a `screen`: how it looks"),
        ("[a]\ncommand = ['a']\ntransport = 'acp'\nscreen = { prompt = '>' }", "only transport `pty` has a `screen`"),
        (
            "[a]\ncommand = ['a']\ntransport = 'acp'\nmodel_args = ['-m']",
            "`model_args` say nowhere which model: `{model}`",
        ),
        (
            "[a]\ncommand = ['a']\ntransport = 'acp'\nresume_args = ['-r']",
            "`resume_args` say nowhere what is resumed: `{id}`",
        ),
        ("[a]\ncommand = ['a']\ntransport = 'acp'\ncredential_files = ['../x']", "`../x` is not a path below a home"),
        (
            "[a]\ncommand = ['a']\ntransport = 'acp'\ncredential_files = ['/etc/x']",
            "`/etc/x` is not a path below a home",
        ),
        ("[a]\ncommand = ['a']\ntransport = 'acp'\ncredential_vars = ['A-B']", "`A-B` can't be the name of a variable"),
        (
            "[a]\ncommand = ['a']\ntransport = 'acp'\nrenews = ['.a/token']",
            "`renews` has `.a/token`, which is not in `credential_files`",
        ),
        (
            "[a]\ncommand = ['a']\ntransport = 'pty'\nresume_args = ['-r', '{id}']\nscreen = { prompt = '>' }",
            "`resume_args` of a terminal need `screen.hook.id`: where its own name for the conversation is found",
        ),
        (
            "[a]\ncommand = ['a']\ntransport = 'pty'\nscreen = { prompt = '>', hook = { file = 'a', text = 'b' } }",
            "`screen.hook`: `b` is no JSON pointer, as `/text` is one",
        ),
        (
            "[a]\ncommand = ['a']\ntransport = 'pty'\n[a.screen]\nprompt = '>'\n\
             permission = { pattern = 'x', allow = 'y', deny = 'n', kind = 'destroy' }",
            "`screen.permission.kind` is one of read, edit, delete, move, search, execute, think, fetch, switch_mode, \
             other, not `destroy`",
        ),
        ("[A]\ncommand = ['a']\ntransport = 'acp'", "a name is 1 to 64 lower-case letters, digits, `-` and `_`"),
    ];
    for (toml, what) in cases {
        let error = Specs::parse(toml).unwrap_err();
        let SpecError::Invalid { what: said, .. } = &error else { panic!("{toml}: {error}") };
        assert_eq!(said, what, "{toml}");
    }
    let unknown = Specs::parse("[a]\ncommand = ['a']\ntransport = 'acp'\ncolour = 1").unwrap_err();
    assert!(unknown.to_string().contains("unknown field `colour`"), "{unknown}");
    let pattern = Specs::parse("[a]\ncommand = ['a']\ntransport = 'pty'\nscreen = { prompt = '(' }").unwrap_err();
    assert!(pattern.to_string().contains("`screen.prompt` is no pattern"), "{pattern}");
    assert!(matches!(Specs::parse("[a"), Err(SpecError::Syntax(_))));
}
