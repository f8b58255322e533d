use super::*;
use crate::ids::ProviderName;

fn draft(config: Config) -> Draft {
    Draft { prefix: "app".into(), config, ..Draft::default() }
}

fn made(config: Config) -> Result<Project, InvalidProject> {
    draft(config).make([0; 4], Timestamp(0), KEEP_DAYS)
}

#[test]
fn an_id_is_its_prefix_and_eight_digits() {
    let project = Project::new("my-app2", [0, 1, 2, 0xff], Timestamp(5)).unwrap();
    assert_eq!((project.id.as_str(), project.prefix.as_str()), ("my-app2-000102ff", "my-app2"));
    assert!(is_project_id(project.id.as_str()));
    for other in ["w-lease-0123456789abcdef", "app", "app-123", "app-0000000G", "App-00000000", "-00000000", "work"] {
        assert!(!is_project_id(other), "{other}");
    }
}

#[test]
fn a_prefix_is_short_lower_case_and_begins_with_a_letter() {
    for bad in ["", "2x", "-x", "Xy", "a b", "a_b", "é", "a/b", "..", &"x".repeat(33)] {
        assert!(Project::new(bad, [0; 4], Timestamp(0)).is_err(), "{bad:?} was accepted");
    }
    assert!(Project::new(&"x".repeat(32), [0; 4], Timestamp(0)).is_ok());
}

#[test]
fn a_new_project_is_kept_for_its_days() {
    let day = 86_400_000;
    let usual = made(Config::default()).unwrap();
    assert_eq!((usual.retention.expires_at, usual.retention.keep_days), (Timestamp(30 * day), 30));
    let own = made(Config { cleanup_after_days: Some(3), ..Config::default() }).unwrap();
    assert_eq!((own.retention.expires_at, own.retention.keep_days), (Timestamp(3 * day), 3));
    assert_eq!((usual.status(), usual.clone.clone()), (Status::Active, Cloning::Nothing));
}

#[test]
fn the_status_is_what_retention_says() {
    let project = Project::new("p", [0; 4], Timestamp(0)).unwrap();
    let at = Some(Timestamp(1));
    for (notified, marked_at, trashed_at, status) in [
        (None, None, None, Status::Active),
        (Some(Level::Warning), None, None, Status::Warned),
        (Some(Level::Final), None, None, Status::Warned),
        (Some(Level::Final), at, None, Status::Marked),
        (None, at, None, Status::Marked),
        (Some(Level::Final), at, at, Status::Trashed),
        (None, None, at, Status::Trashed),
    ] {
        let retention = Retention { notified, marked_at, trashed_at, ..project.retention.clone() };
        assert_eq!(Project { retention, ..project.clone() }.status(), status);
    }
    for status in Status::ALL {
        assert_eq!(Status::parse(status.as_str()), Some(status));
    }
}

#[test]
fn what_is_wrong_with_a_project_is_named() {
    let config = Config::default;
    let limits = |limits| Config { limits, ..config() };
    let cases = [
        (Config { image: Some(String::new()), ..config() }, "image"),
        (Config { image: Some("--privileged".into()), ..config() }, "image"),
        (Config { agent: Some("a b".into()), ..config() }, "agent"),
        (Config { agent_model: Some("a\n".into()), ..config() }, "agent_model"),
        (Config { env: [("A-B".to_owned(), String::new())].into(), ..config() }, "env"),
        (Config { env: [("BASH_ENV".to_owned(), "x".to_owned())].into(), ..config() }, "env"),
        (Config { env: [("A".to_owned(), "x\0".to_owned())].into(), ..config() }, "env"),
        (limits(Limits { memory: Some(0), ..Limits::default() }), "limits.memory"),
        (limits(Limits { processes: Some(0), ..Limits::default() }), "limits.processes"),
        (limits(Limits { cpu_millis: Some(0), ..Limits::default() }), "limits.cpu"),
        (limits(Limits { instances: Some(0), ..Limits::default() }), "limits.instances"),
        (limits(Limits { disk: Some(1000), ..Limits::default() }), "limits.disk"),
        (Config { cleanup_after_days: Some(0), ..config() }, "cleanup_after_days"),
        (Config { cleanup_after_days: Some(40_000), ..config() }, "cleanup_after_days"),
    ];
    for (config, key) in cases {
        match made(config.clone()) {
            Err(InvalidProject::Config { setting, .. }) => assert_eq!(setting, key),
            Err(InvalidProject::Env(_)) => assert_eq!("env", key),
            other => panic!("{config:?}: {other:?}"),
        }
    }
    let tagged = |tags: &[&str]| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        Draft { tags, ..draft(Config::default()) }.make([0; 4], Timestamp(0), KEEP_DAYS)
    };
    assert!(tagged(&["a", "team:x/y_z.1-2", "größe"]).is_ok());
    for bad in ["", "a b", "a,b", "a\n", &"x".repeat(65)] {
        assert!(matches!(tagged(&[bad]), Err(InvalidProject::Tag(_))), "{bad:?}");
    }
    let described = |text: &str| {
        Draft { description: text.into(), ..draft(Config::default()) }.make([0; 4], Timestamp(0), KEEP_DAYS)
    };
    assert!(described("two\nlines, ünicode").is_ok());
    assert!(described("\u{1b}[2J").is_err() && described(&"x".repeat(4097)).is_err());
}

#[test]
fn a_change_is_the_next_version_and_leaves_the_rest() {
    let project = made(Config { agent: Some("codex".into()), ..Config::default() }).unwrap();
    let change = Change { description: Some("new".into()), ..Change::default() };
    let after = project.changed(change, 30).unwrap();
    assert_eq!(after, Project { description: "new".into(), version: 1, ..project.clone() });
    let config =
        Config { cleanup_after_days: Some(5), provider: ProviderName::parse("local").ok(), ..Config::default() };
    let after = project.changed(Change { config: Some(config.clone()), ..Change::default() }, 30).unwrap();
    assert_eq!((after.config.clone(), after.retention.keep_days), (config, 5));
    let after = after.changed(Change { config: Some(Config::default()), ..Change::default() }, 30).unwrap();
    assert_eq!(after.retention.keep_days, 30, "as usual again");
    let (repo, _) = RepoUrl::parse("https://h/r.git", Schemes::default()).unwrap();
    let other = Config { repo_url: Some(repo), ..Config::default() };
    assert!(project.changed(Change { config: Some(other), ..Change::default() }, 30).is_err(), "it is cloned once");
}

#[test]
fn a_filter_takes_what_fits_all_of_it() {
    let mut project = Project::new("web-app", [0; 4], Timestamp(0)).unwrap();
    project.tags = ["a", "b"].map(str::to_owned).into();
    let tags = |tags: &[&str]| Filter { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..Filter::default() };
    let prefix = |text: &str| Filter { prefix: Some(text.to_owned()), ..Filter::default() };
    assert!(Filter::kept().takes(&project) && prefix("we").takes(&project) && prefix("web-app").takes(&project));
    assert!(!prefix("app").takes(&project) && !prefix("web-app-0").takes(&project));
    assert!(tags(&["a"]).takes(&project) && tags(&["b", "a"]).takes(&project) && !tags(&["a", "c"]).takes(&project));
    let trashed = Filter { status: Some(Status::Trashed), ..Filter::default() };
    assert!(!trashed.takes(&project));
    project.retention.trashed_at = Some(Timestamp(1));
    assert!(trashed.takes(&project) && !Filter::kept().takes(&project));
}

#[test]
fn credentials_do_not_stay_in_an_address() {
    let parse = |text: &str| RepoUrl::parse(text, Schemes { files: true });
    for (text, stored, secret) in [
        ("https://host/a/b.git", "https://host/a/b.git", None),
        ("https://user:pa@ss@host:8443/a.git", "https://host:8443/a.git", Some("user:pa@ss")),
        ("https://token@host/a", "https://host/a", Some("token")),
        ("ssh://git@host:22/a/b.git", "ssh://git@host:22/a/b.git", None),
        ("git://host/a", "git://host/a", None),
        ("file:///srv/r.git", "file:///srv/r.git", None),
    ] {
        let (url, credentials) = parse(text).unwrap();
        assert_eq!((url.as_str(), credentials.as_deref()), (stored, secret), "{text}");
    }
}

#[test]
fn what_git_would_take_for_an_order_is_no_address() {
    for bad in [
        "",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=x",
        "ext::sh -c id",
        "ext://x/y",
        "ext::https://x/y",
        "fd::17/x",
        "host:path.git",
        "/srv/r.git",
        "../r.git",
        "http://host/a",
        "ftp://host/a",
        "https:///a",
        "https://-oProxy/a",
        "ssh://-oProxyCommand=x/a",
        "ssh://-x@host/a",
        "ssh://a:b@host/a",
        "ssh://git@/a",
        "git://me@host/a",
        "https://host",
        "https://host/",
        "https://ho st/a",
        "https://host/a\nb",
        "https://host/a?x=--y",
        "file:///srv/r.git",
        "file://host/srv",
    ] {
        let refused = RepoUrl::parse(bad, Schemes::default());
        assert!(matches!(refused, Err(InvalidProject::Config { setting: "repo_url", .. })), "{bad:?}: {refused:?}");
    }
    assert!(RepoUrl::parse("file://host/srv", Schemes { files: true }).is_err());
}
