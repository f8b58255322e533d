//! Every setting with its default, as files to start from: `stead.example.toml` and `.env.example` are printed from here.

use std::fmt::Write;

/// A setting: its key, its default as it is written, and what it is for. One whose default is that it is absent has an
/// example instead.
struct Setting {
    key: &'static str,
    value: &'static str,
    absent: bool,
    about: &'static [&'static str],
}

const fn set(key: &'static str, value: &'static str, about: &'static [&'static str]) -> Setting {
    Setting { key, value, absent: false, about }
}

const fn absent(key: &'static str, value: &'static str, about: &'static [&'static str]) -> Setting {
    Setting { key, value, absent: true, about }
}

/// Lines that set nothing.
const fn note(about: &'static [&'static str]) -> Setting {
    Setting { key: "", value: "", absent: true, about }
}

struct Section {
    /// As it stands in brackets; empty for the top.
    name: &'static str,
    about: &'static [&'static str],
    settings: &'static [Setting],
}

const SECTIONS: [Section; 8] = [
    Section {
        name: "",
        about: &[],
        settings: &[absent(
            "default_provider",
            "\"namespace\"",
            &[
                "The provider of threads that name none. Absent: `namespace` where this machine can isolate, else `local`.",
            ],
        )],
    },
    Section {
        name: "server",
        about: &["The HTTP server."],
        settings: &[
            set("listen", "\"127.0.0.1:7878\"", &["Where it listens; port 0 takes any that is free."]),
            set(
                "allowed_hosts",
                "[]",
                &[
                    "Host names, without ports, that it answers to beside its address and `localhost`; also as origins of pages.",
                ],
            ),
            set("max_connections", "4096", &["Connections open at once; more are answered with 503."]),
            set("head_timeout_s", "30", &["How long the head of a request may take, and a connection may be idle."]),
            set("body_timeout_s", "60", &["How long a body that is kept in memory may take."]),
            set(
                "requests_per_second",
                "10000",
                &["Requests a second for each token, with as many at once; 0: any number."],
            ),
            set(
                "journal_limit",
                "\"20GiB\"",
                &["What the output of all commands may hold together; the oldest that has ended goes first."],
            ),
            set(
                "log",
                "\"info\"",
                &["What is logged: `error`, `warn`, `info`, `debug`, `trace`, or by part: `stead_server=debug`."],
            ),
            set("log_format", "\"text\"", &["`text` or `json`."]),
        ],
    },
    Section {
        name: "agents",
        about: &[
            "Terminal agents. Five are known; another is a section `[agent.NAME]`, and what a section names of a known one is",
            "changed: see docs/agents.md.",
        ],
        settings: &[
            set(
                "allowed_roots",
                "[]",
                &["Directories of this machine below which agents may be asked to work, beside projects and threads."],
            ),
            set(
                "idle_timeout_s",
                "600",
                &["A session that nobody has used for so long loses its process; its conversation stays."],
            ),
            set("activity_timeout_s", "600", &["A turn in which nothing happens for so long is ended."]),
            set("permission_timeout_s", "300", &["A question that nobody answers for so long is answered with no."]),
        ],
    },
    Section {
        name: "projects",
        about: &["Projects: workspaces that threads share, under DATA/projects."],
        settings: &[
            set("max_projects", "1000", &["How many there may be outside the trash. Also as MAX_PROJECTS."]),
            set(
                "clone_from_files",
                "false",
                &[
                    "Whether `repo_url` may be a `file://` address: whoever makes a project could so read what the server can.",
                ],
            ),
            set(
                "stop_on_disconnect",
                "true",
                &[
                    "Whether the instance of a session stops when its last connection goes. Also as CONTAINER_STOP_ON_DISCONNECT.",
                ],
            ),
            set(
                "recreate_on_reconnect",
                "true",
                &[
                    "Whether whoever comes back gets a fresh instance, with the same files and terminal, rather than the one that",
                    "was stopped. Also as CONTAINER_RECREATE_ON_RECONNECT.",
                ],
            ),
            set(
                "cleanup_enabled",
                "true",
                &[
                    "Whether projects, and threads without one, that nobody works in are warned of, marked and moved to the trash by",
                    "themselves; see docs/retention.md. Also as PROJECT_CLEANUP_ENABLED.",
                ],
            ),
            set(
                "cleanup_after_days",
                "30",
                &[
                    "Days without work until one is marked; a project can have its own. Also as PROJECT_CLEANUP_AFTER_DAYS.",
                ],
            ),
            set(
                "cleanup_warning_days",
                "3",
                &[
                    "How many days before that it is said for the first time; 0: never. Also as PROJECT_CLEANUP_WARNING_DAYS.",
                ],
            ),
            set(
                "cleanup_check_interval_s",
                "86400",
                &["How often they are looked through, in seconds. Also as PROJECT_CLEANUP_CHECK_INTERVAL."],
            ),
            set("trash_hours", "24", &["How long a deleted project can be restored."]),
            absent(
                "snapshot_ttl_days",
                "90",
                &["How long a snapshot stays that doesn't say. Absent: as long as its project."],
            ),
            absent(
                "webhook_url",
                "\"https://example.com/stead\"",
                &["Who is told when a project is warned of, marked, deleted, restored or gone."],
            ),
            absent("webhook_secret", "\"a long random text\"", &["By which they know that it comes from here."]),
        ],
    },
    Section {
        name: "memory",
        about: &[
            "Memories of projects that are kept in RAM: hot ones, of which every write is in a journal before it is",
            "acknowledged, and files of sessions, which go with them.",
        ],
        settings: &[
            set(
                "snapshot_enabled",
                "true",
                &[
                    "Whether hot memory is written as a whole now and then and when a session ends. Without it nothing is lost,",
                    "but a start reads more. Also as MEMORY_SNAPSHOT_ENABLED.",
                ],
            ),
            set(
                "snapshot_interval_s",
                "300",
                &["How often, if something has changed. Also as MEMORY_SNAPSHOT_INTERVAL."],
            ),
            set(
                "hot_limit",
                "\"256MiB\"",
                &["What the hot memory of a project may take; then writes are 507 `no_space`."],
            ),
            set("state_limit", "\"64MiB\"", &["The same of the files of a session."]),
            set(
                "value_limit",
                "\"16MiB\"",
                &["The largest file that is kept in RAM; a larger one is 413 `too_large`."],
            ),
            set(
                "unload_after_s",
                "900",
                &["Hot memory that nobody has used for so long is put away; the next to ask has it read again."],
            ),
        ],
    },
    Section {
        name: "routes",
        about: &[
            "Where the files of a project are kept, by the beginning of their paths; the longest counts. A project can have a",
            "table of its own. As a variable it is one, JSON: STEAD_ROUTES, or AGENT_BACKEND_ROUTES.",
            "",
            "  backend      read      write     what it keeps (times: docs/benchmarks-memory.md)",
            "  filesystem   ~20 us    ~350 us   files in the project's directory; lasts, as large as the disk, seen in sandboxes",
            "  store        < 1 us    ~3 us     RAM with a journal; lasts, also over kill -9, within `memory.hot_limit`",
            "  state        < 1 us    ~1 us     RAM of one session; gone with it, and with the server",
            "",
            "Recommended, and what holds without this section: the workspace and large notes on disk, what is read at every",
            "turn in RAM, and what nobody misses tomorrow in neither.",
        ],
        settings: &[
            set("\"/workspace/\"", "{ type = \"filesystem\", root = \"repo\" }", &[]),
            set("\"/memories/hot/\"", "\"store\"", &[]),
            set("\"/memories/persistent/\"", "{ type = \"filesystem\", root = \".memories/persistent\" }", &[]),
            set("\"/tmp/\"", "\"state\"", &[]),
            note(&[
                "",
                "All of it on disk: nothing is bound by RAM and everything can be looked at with other tools, but every read asks",
                "the file system.",
                "  \"/workspace/\" = \"filesystem\"",
                "  \"/memories/\" = \"filesystem\"",
                "  \"/tmp/\" = { type = \"filesystem\", root = \"tmp\" }",
                "",
                "As little disk as can be: memories in RAM and in the journal alone, everything else gone with its session. For",
                "many small projects that live for an hour.",
                "  \"/workspace/\" = \"filesystem\"",
                "  \"/memories/\" = \"store\"",
                "  \"/\" = \"state\"",
            ]),
        ],
    },
    Section {
        name: "provider.namespace",
        about: &[
            "Providers are known by the name you give them; two of one kind are fine. `namespace` and `local` are there without",
            "being written down.",
        ],
        settings: &[
            set(
                "kind",
                "\"namespace\"",
                &[
                    "What it is: `namespace` (isolated), `local` (plain processes that see what you see) or `docker` (containers).",
                ],
            ),
            set(
                "on_exit",
                "\"leave\"",
                &["What becomes of instances when the server stops: `leave`, `pause` or `destroy`."],
            ),
            set(
                "init_commands",
                "[]",
                &[
                    "Run in every fresh sandbox before anything else. One that fails is an error for whoever asked for the sandbox.",
                ],
            ),
            set(
                "mount_path",
                "\"/workspace\"",
                &["The next four are for `namespace` only.", "Where the workspace is inside."],
            ),
            set("network", "\"host\"", &["`host`: the host's network; `none`: none at all."]),
            set("user", "\"agent:1000:1000\"", &["Who commands run as, inside: name, uid, gid."]),
            set("read_only", "[]", &["More of the host that is seen inside, read-only, at the same path."]),
        ],
    },
    Section {
        name: "provider.namespace.limits",
        about: &["Absent: no limit. What this machine can't enforce is told in the lease's warnings."],
        settings: &[
            absent("memory", "\"2GiB\"", &[]),
            absent("processes", "512", &[]),
            absent("cpu", "1.5", &[]),
            set("tmp", "\"1GiB\"", &["What /tmp, /run, /var and shared memory may hold together; `namespace` only."]),
        ],
    },
];

/// Sections that hold nothing unless they are written down: shown, and commented out.
const EXAMPLES: [Section; 4] = [
    Section {
        name: "provider.docker",
        about: &[
            "Containers of Docker or Podman, see docs/providers.md. What is said of `namespace` above holds for `on_exit`,",
            "`init_commands`, `mount_path` and `limits` as well; `limits.tmp` is what /tmp may hold.",
        ],
        settings: &[
            set("kind", "\"docker\"", &[]),
            set(
                "image",
                "\"stead/base\"",
                &["What threads run in whose project names no other; `stead image build` makes this one."],
            ),
            absent(
                "root",
                "\"/srv/debian\"",
                &["Instead of an image: a directory of this machine with a system in it, of which one is made."],
            ),
            set(
                "socket",
                "\"/var/run/docker.sock\"",
                &[
                    "Where the engine listens. Absent: as DOCKER_HOST says, else where Docker, then Podman, usually does.",
                ],
            ),
            set(
                "network",
                "\"bridge\"",
                &["`bridge`: one of its own with a way out; `host`: the host's; `none`: none at all."],
            ),
            set(
                "user",
                "\"agent:1000:1000\"",
                &["Who commands run as. Absent: whoever the server is, so that both can read the same files."],
            ),
            set("read_only_root", "false", &["Whether nothing can be written but the workspace, the home and /tmp."]),
        ],
    },
    Section {
        name: "provider.e2b",
        about: &[
            "Sandboxes of a cloud, see docs/providers.md. `on_exit`, `init_commands` and `mount_path` as above. The key is in the",
            "environment, never here; E2B_DOMAIN, E2B_API_URL and E2B_SANDBOX_URL are heeded as well.",
        ],
        settings: &[
            set("kind", "\"e2b\"", &[]),
            set("template", "\"base\"", &["What sandboxes are made of; `image` is another word for it."]),
            set("api_key_variable", "\"E2B_API_KEY\"", &["The variable that has the key: two accounts have two."]),
            absent("api_url", "\"https://api.e2b.app\"", &["Where the cloud is, if not where it usually is."]),
            set("domain", "\"e2b.app\"", &["E2B alone: what sandboxes are below."]),
            set("network", "\"host\"", &["`none`: no way to the network; else as the cloud has it. Not for AgentBay."]),
            set(
                "timeout_s",
                "300",
                &["After so long without a command a sandbox sleeps (E2B), stops (Daytona, 900) or ends (AgentBay)."],
            ),
        ],
    },
    Section {
        name: "provider.daytona",
        about: &["The same of Daytona; DAYTONA_API_URL and DAYTONA_TARGET are heeded."],
        settings: &[
            set("kind", "\"daytona\"", &[]),
            absent("template", "\"my-snapshot\"", &["A snapshot of Daytona's. Absent: its own default."]),
            set("api_key_variable", "\"DAYTONA_API_KEY\"", &[]),
            absent("target", "\"eu\"", &["The region."]),
        ],
    },
    Section {
        name: "provider.agentbay",
        about: &["The same of AgentBay; AGENTBAY_ENDPOINT and AGENTBAY_REGION_ID are heeded."],
        settings: &[
            set("kind", "\"agentbay\"", &[]),
            set("image", "\"linux_latest\"", &[]),
            set("api_key_variable", "\"AGENTBAY_API_KEY\"", &[]),
            absent("region", "\"cn-shanghai\"", &[]),
            set("can_pause", "false", &["Whether this account may pause sandboxes; AgentBay has a list of those."]),
        ],
    },
];

/// The same as JSON.
const ROUTES: &str = r#"{"/workspace/": {"type": "filesystem", "root": "repo"}, "/memories/hot/": "store", "/memories/persistent/": {"type": "filesystem", "root": ".memories/persistent"}, "/tmp/": "state"}"#;

fn comment(out: &mut String, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(out, "{}", format!("# {line}").trim_end());
    }
}

/// `stead.example.toml`.
pub fn as_toml() -> String {
    let mut out = String::new();
    comment(
        &mut out,
        &[
            "Every setting of stead, with its default. Copy what you want to change to `stead.toml`, in the working directory or in",
            "`$XDG_CONFIG_HOME/stead/`. A setting that is unknown, wrong or can't be enforced is an error; `stead doctor` checks.",
        ],
    );
    for section in &SECTIONS {
        out.push('\n');
        comment(&mut out, section.about);
        if !section.name.is_empty() {
            let _ = writeln!(out, "[{}]", section.name);
        }
        for setting in section.settings {
            comment(&mut out, setting.about);
            if setting.key.is_empty() {
                continue;
            }
            let mark = if setting.absent { "# " } else { "" };
            let _ = writeln!(out, "{mark}{} = {}", setting.key, setting.value);
        }
    }
    for section in &EXAMPLES {
        out.push('\n');
        comment(&mut out, section.about);
        let _ = writeln!(out, "# [{}]", section.name);
        for setting in section.settings {
            comment(&mut out, setting.about);
            let _ = writeln!(out, "# {} = {}", setting.key, setting.value);
        }
    }
    out
}

/// The same of tables of routes, which are lines with two spaces before them: each as the one variable that it is.
fn comment_tables(out: &mut String, lines: &[&str]) {
    let mut table = String::new();
    for line in lines.iter().copied().chain([""]) {
        if line.starts_with("  \"/") {
            table.push_str(line);
            table.push('\n');
            continue;
        }
        if let Some(json) = as_json(&std::mem::take(&mut table)) {
            let _ = writeln!(out, "# STEAD_ROUTES={json}");
        }
        comment(out, &[line]);
    }
    // The end of the last one was no line.
    out.truncate(out.trim_end_matches("#\n").len());
}

fn as_json(table: &str) -> Option<String> {
    let routes: toml::Table = toml::from_str(table).ok().filter(|routes: &toml::Table| !routes.is_empty())?;
    serde_json::to_string(&routes).ok()
}

/// `.env.example`.
pub fn as_variables() -> String {
    let mut out = String::new();
    comment(
        &mut out,
        &[
            "Every setting of stead as a variable, with its default: `stead serve --env-file FILE`, or in the environment, which",
            "stands above it. Both stand above `stead.toml`. Values are written as there; text needs no quotes.",
            "",
            "Not settings, and read by every command: STEAD_DATA, STEAD_CONFIG, STEAD_URL, STEAD_TOKEN, STEAD_THREAD,",
            "STEAD_PROJECT.",
        ],
    );
    for section in &SECTIONS {
        out.push('\n');
        comment(&mut out, section.about);
        if section.name == "routes" {
            let _ = writeln!(out, "# STEAD_ROUTES={ROUTES}");
        }
        for setting in section.settings {
            if section.name == "routes" {
                comment_tables(&mut out, setting.about);
                continue;
            }
            comment(&mut out, setting.about);
            let place = [section.name, setting.key].join(".");
            let name = place.trim_start_matches('.').to_ascii_uppercase().replace(['.', '-'], "_");
            let _ = writeln!(out, "# STEAD_{name}={}", setting.value.trim_matches('"'));
        }
    }
    out
}
