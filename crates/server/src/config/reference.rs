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

struct Section {
    /// As it stands in brackets; empty for the top.
    name: &'static str,
    about: &'static [&'static str],
    settings: &'static [Setting],
}

const SECTIONS: [Section; 4] = [
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
        name: "provider.namespace",
        about: &[
            "Providers are known by the name you give them; two of one kind are fine. `namespace` and `local` are there without",
            "being written down.",
        ],
        settings: &[
            set(
                "kind",
                "\"namespace\"",
                &["What it is: `namespace` (isolated) or `local` (plain processes that see what you see)."],
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
            let mark = if setting.absent { "# " } else { "" };
            let _ = writeln!(out, "{mark}{} = {}", setting.key, setting.value);
        }
    }
    out
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
            "Not settings, and read by every command: STEAD_DATA, STEAD_CONFIG, STEAD_URL, STEAD_TOKEN, STEAD_THREAD.",
        ],
    );
    for section in &SECTIONS {
        out.push('\n');
        comment(&mut out, section.about);
        for setting in section.settings {
            comment(&mut out, setting.about);
            let place = [section.name, setting.key].join(".");
            let name = place.trim_start_matches('.').to_ascii_uppercase().replace(['.', '-'], "_");
            let _ = writeln!(out, "# STEAD_{name}={}", setting.value.trim_matches('"'));
        }
    }
    out
}
