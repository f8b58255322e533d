//! Providers as they are configured. Every setting is honoured or refused here, before anything starts; nothing is
//! ignored.
//!
//! ```toml
//! default_provider = "box"
//!
//! [provider.box]
//! kind = "namespace"                 # or "local"
//! on_exit = "leave"                  # or "pause", "destroy": what becomes of instances when the server stops
//! init_commands = ["git config --global user.name agent"]
//! mount_path = "/workspace"          # namespace only, like the next three
//! network = "host"                   # or "none"
//! user = "agent:1000:1000"           # name, uid and gid inside
//! read_only = ["/opt/tools"]         # more of the host to see
//! limits = { memory = "2GiB", processes = 512, cpu = 1.5, tmp = "1GiB" }
//!
//! [provider.containers]
//! kind = "docker"                    # or Podman, by the same interface
//! image = "debian:12"
//! network = "bridge"                 # or "host", "none"
//! socket = "/run/podman/podman.sock"
//! read_only_root = true
//!
//! [server]
//! listen = "127.0.0.1:7878"
//! allowed_hosts = ["stead.example.com"]
//!
//! [projects]
//! max_projects = 1000
//! ```
//!
//! The environment stands above the file, see [`overlay`].

mod agents;
mod clouds;
mod docker;
mod memory;
mod overlay;
mod projects;
mod provider;
pub mod reference;
mod server;
mod size;

pub use overlay::is_alias;
pub use server::{LogFormat, ServerConfig};
pub(crate) use size::read_size;

use crate::agents::AgentSettings;
use crate::memory::MemorySettings;
use crate::project::ProjectSettings;
use crate::provider::{Availability, Program, Provider, Providers};
use crate::stead::{Settings, Treatment, UpkeepSettings};
use provider::{At, WrittenProvider};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stead_model::ids::ProviderName;
use stead_model::route::Routes;

/// How often expired sessions are looked for.
const REAP_EVERY: Duration = Duration::from_secs(30);

/// The names of the providers that are there without being configured.
const NAMESPACE: &str = "namespace";
const LOCAL: &str = "local";

/// The kind that is tried where it isn't configured, see [`Config::possible`].
const DOCKER: &str = "docker";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("`{file}`: {message}")]
    Unreadable { file: String, message: String },
    #[error("`{file}`: `{key}`: {message}")]
    Setting { file: String, key: String, message: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    default_provider: Option<String>,
    #[serde(default)]
    server: server::Written,
    #[serde(default)]
    agents: agents::Written,
    #[serde(default)]
    agent: toml::Table,
    #[serde(default)]
    projects: projects::Written,
    #[serde(default)]
    memory: memory::Written,
    routes: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    provider: BTreeMap<String, WrittenProvider>,
}

/// What the machine gives a configuration to stand on.
#[derive(Debug, Clone)]
pub struct Ground {
    pub data: PathBuf,
    pub program: Program,
    /// `PATH` for shells without walls.
    pub path: String,
    /// Variables that may be settings.
    pub variables: Vec<(String, String)>,
    /// Whose credentials agents may be given.
    pub home: Option<PathBuf>,
    /// Variables that agents may name as their credentials.
    pub environment: BTreeMap<String, String>,
    /// The static steward that is built into this program, if one is.
    pub steward: Option<&'static [u8]>,
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Config {
    pub providers: Providers,
    pub treatments: BTreeMap<ProviderName, Treatment>,
    pub server: ServerConfig,
    pub agents: AgentSettings,
    pub projects: ProjectSettings,
    pub upkeep: UpkeepSettings,
    pub memory: MemorySettings,
    pub routes: Arc<Routes>,
    /// Absent: the best that works, see [`Self::settings`].
    pub default_provider: Option<ProviderName>,
    /// What could be configured and isn't: for whoever asks what this machine can.
    pub possible: Vec<Arc<dyn Provider>>,
    /// Where the engines of providers that are containers listen; one that isn't configured is `docker`.
    pub engines: BTreeMap<ProviderName, Vec<PathBuf>>,
    /// `local`, which is there whatever the file says about it.
    fallback: ProviderName,
}

impl Config {
    /// Reads a configuration; without a file there are `namespace` and `local` as they come.
    pub fn load(file: Option<&Path>, ground: &Ground) -> Result<Self, ConfigError> {
        let Some(file) = file else { return Self::parse("", "the environment", ground) };
        let shown = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&text, &shown, ground),
            Err(error) => Err(ConfigError::Unreadable { file: shown, message: error.to_string() }),
        }
    }

    pub fn parse(text: &str, file: &str, ground: &Ground) -> Result<Self, ConfigError> {
        let unreadable =
            |error: toml::de::Error| ConfigError::Unreadable { file: file.to_owned(), message: error.to_string() };
        let mut table: toml::Table = toml::from_str(text).map_err(unreadable)?;
        if ground.variables.is_empty() {
            // Read again as it was written: what is wrong is told with its line.
            let _: Written = toml::from_str(text).map_err(unreadable)?;
        }
        overlay::lay(&mut table, &ground.variables)?;
        let mut written: Written = table.try_into().map_err(unreadable)?;
        let server = std::mem::take(&mut written.server).read(file)?;
        let agents = std::mem::take(&mut written.agents).read(file, &written.agent, ground)?;
        let programs = agents.installations();
        let (projects, upkeep) = std::mem::take(&mut written.projects).read(file)?;
        let memory = std::mem::take(&mut written.memory).read(file)?;
        let routes = Arc::new(memory::routes(written.routes.take(), file)?);
        for kind in [NAMESPACE, LOCAL] {
            written.provider.entry(kind.to_owned()).or_insert_with(|| WrittenProvider::plain(kind));
        }
        let mut providers: Vec<Arc<dyn Provider>> = Vec::new();
        let (mut treatments, mut engines) = (BTreeMap::new(), BTreeMap::new());
        for (name, provider) in written.provider {
            let at = At { file, provider: &name };
            let id = ProviderName::parse(&name).map_err(|error| at.wrong("", &error.to_string()))?;
            if provider.kind == DOCKER {
                engines.insert(id.clone(), provider.sockets(&at, ground)?);
            }
            treatments.insert(id.clone(), provider.treatment(&at)?);
            providers.push(provider.build(&at, id, ground, &programs)?);
        }
        let mut possible: Vec<Arc<dyn Provider>> = Vec::new();
        if engines.is_empty() {
            let at = At { file, provider: DOCKER };
            let id = ProviderName::parse(DOCKER).map_err(|error| at.wrong("", &error.to_string()))?;
            let plain = WrittenProvider::plain(DOCKER);
            engines.insert(id.clone(), plain.sockets(&at, ground)?);
            possible.push(plain.build(&at, id, ground, &programs)?);
        }
        for (kind, _) in clouds::CLOUDS {
            if !providers.iter().any(|provider| provider.kind() == kind) {
                let at = At { file, provider: kind };
                let id = ProviderName::parse(kind).map_err(|error| at.wrong("", &error.to_string()))?;
                possible.push(WrittenProvider::plain(kind).build(&at, id, ground, &programs)?);
            }
        }
        let default_provider = match written.default_provider {
            Some(name) => {
                let wrong = |message: String| {
                    let key = "default_provider".to_owned();
                    ConfigError::Setting { file: file.to_owned(), key, message }
                };
                let id = ProviderName::parse(&name).map_err(|error| wrong(error.to_string()))?;
                if !treatments.contains_key(&id) {
                    return Err(wrong(format!("no provider `{id}` is configured")));
                }
                Some(id)
            }
            None => None,
        };
        let fallback = At { file, provider: LOCAL };
        let fallback = ProviderName::parse(LOCAL).map_err(|error| fallback.wrong("", &error.to_string()))?;
        Ok(Self {
            providers: Providers::new(providers),
            treatments,
            server,
            agents,
            projects,
            upkeep,
            memory,
            routes,
            default_provider,
            possible,
            engines,
            fallback,
        })
    }

    /// Settles which provider a thread gets that names none: the configured one, else `namespace` where it works. Only
    /// where nothing can isolate it is `local`, and then that is said. This holds as long as the server lives, so what
    /// `namespace` lacks only at the moment doesn't count: threads are refused until there is some of it again.
    pub async fn settings(&self) -> (Settings, Option<String>) {
        let settings = |default_provider: ProviderName| Settings {
            default_provider,
            treatments: self.treatments.clone(),
            reap_every: REAP_EVERY,
        };
        if let Some(name) = &self.default_provider {
            return (settings(name.clone()), None);
        }
        let named = |wanted: &str| self.providers.iter().find(|provider| provider.name().as_str() == wanted);
        let mut warning = None;
        if let Some(provider) = named(NAMESPACE) {
            match provider.availability().await {
                Availability::Works(_) => return (settings(provider.name().clone()), None),
                Availability::NotNow { why } => {
                    let consequence = "threads that name no provider can't run commands until it is free again";
                    let warning =
                        format!("provider `{NAMESPACE}` lacks something at the moment ({why}): {consequence}");
                    return (settings(provider.name().clone()), Some(warning));
                }
                Availability::Missing { why, .. } => {
                    let consequence = "commands run as you, and see what you see";
                    warning = Some(format!("this machine can't isolate sandboxes ({why}): {consequence}"));
                }
            }
        }
        (settings(self.fallback.clone()), warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stead::OnExit;

    fn ground() -> Ground {
        let program = Program { path: PathBuf::from("/bin/true"), call: Vec::new() };
        Ground {
            data: PathBuf::from("/nonexistent"),
            program,
            path: "/bin".to_owned(),
            variables: Vec::new(),
            home: None,
            environment: BTreeMap::new(),
            steward: None,
        }
    }

    fn names(config: &Config) -> Vec<(String, &'static str)> {
        config.providers.iter().map(|provider| (provider.name().to_string(), provider.kind())).collect()
    }

    #[test]
    fn without_a_file_both_kinds_of_this_machine_are_there() {
        let config = Config::load(None, &ground()).unwrap();
        assert_eq!(names(&config), [("local".to_owned(), "local"), ("namespace".to_owned(), "namespace")]);
        assert_eq!(config.default_provider, None);
    }

    #[test]
    fn two_of_one_kind_stand_side_by_side_under_their_names() {
        let text = "default_provider = 'big'\n[provider.big]\nkind = 'namespace'\nlimits = { memory = '8GiB' }\n\
                    [provider.small]\nkind = 'namespace'\non_exit = 'destroy'\ninit_commands = ['true']\n\
                    network = 'none'\nuser = 'me:5:6'\nlimits = { memory = 1048576, processes = 9, cpu = 0.5, tmp = '1MiB' }\n";
        let config = Config::parse(text, "stead.toml", &ground()).unwrap();
        let kinds = names(&config);
        assert!(kinds.contains(&("big".to_owned(), "namespace")) && kinds.contains(&("small".to_owned(), "namespace")));
        let small = &config.treatments[&ProviderName::parse("small").unwrap()];
        assert_eq!((small.on_exit, small.init_commands.as_slice()), (OnExit::Destroy, ["true".to_owned()].as_slice()));
        assert_eq!(config.default_provider.unwrap().as_str(), "big");
    }

    #[test]
    fn an_engine_is_looked_for_where_it_is_said_to_be() {
        let sockets = |text: &str, environment: &[(&str, &str)]| {
            let pairs = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let ground = Ground { environment: pairs.collect(), ..ground() };
            let config = Config::parse(text, "stead.toml", &ground).unwrap();
            let shown = |paths: &Vec<PathBuf>| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            config.engines.iter().map(|(name, paths)| (name.to_string(), shown(paths))).collect::<Vec<_>>()
        };
        let of = |name: &str, paths: &[&str]| {
            vec![(name.to_owned(), paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())]
        };
        let usual = ["/var/run/docker.sock", "/run/podman/podman.sock"];
        assert_eq!(sockets("", &[]), of("docker", &usual));
        let own = [usual[0], usual[1], "/run/user/7/podman/podman.sock"];
        assert_eq!(sockets("", &[("XDG_RUNTIME_DIR", "/run/user/7")]), of("docker", &own));
        assert_eq!(sockets("", &[("DOCKER_HOST", "unix:///s")]), of("docker", &["/s"]));
        assert_eq!(sockets("", &[("DOCKER_HOST", "tcp://h:1")]), of("docker", &usual), "not a socket");
        let written = "[provider.pod]\nkind = 'docker'\nsocket = 'unix:///p'";
        assert_eq!(sockets(written, &[("DOCKER_HOST", "unix:///s")]), of("pod", &["/p"]));
    }

    /// Each with the key that the message must name.
    #[test]
    fn what_is_unknown_wrong_or_unenforceable_is_refused_with_its_key() {
        let cases = [
            ("colour = 1", "colour"),
            ("default_provider = 'nobody'", "default_provider"),
            ("[provider.a]\nkind = 'dokcer'", "provider.a.kind"),
            ("[provider.a]\nkind = 'docker'\ntemplate = 'x'", "provider.a.template"),
            ("[provider.a]\nkind = 'docker'\nread_only = ['/opt']", "provider.a.read_only"),
            ("[provider.a]\nkind = 'docker'\nnetwork = 'wifi'", "provider.a.network"),
            ("[provider.a]\nkind = 'docker'\nsocket = 'tcp://h:1'", "provider.a.socket"),
            ("[provider.a]\nkind = 'docker'\nuser = 'root'", "provider.a.user"),
            ("[provider.a]\nkind = 'docker'\nimage = ''", "provider.a.image"),
            ("[provider.a]\nkind = 'docker'\nmount_path = 'w'", "provider.a.mount_path"),
            ("[provider.a]\nkind = 'docker'\nroot = 'w'", "provider.a.root"),
            ("[provider.a]\nkind = 'docker'\nroot = '/w'\nimage = 'x'", "provider.a.root"),
            ("[provider.a]\nkind = 'namespace'\nroot = '/w'", "provider.a.root"),
            ("[provider.a]\nkind = 'docker'\nlimits = { tmp = 0 }", "provider.a.limits.tmp"),
            ("[provider.a]\nkind = 'local'\nsocket = '/x'", "provider.a.socket"),
            ("[provider.a]\nkind = 'namespace'\nread_only_root = true", "provider.a.read_only_root"),
            ("[provider.a]\nkind = 'e2b'\nuser = 'u:1:1'", "provider.a.user"),
            ("[provider.a]\nkind = 'e2b'\nlimits = { memory = 1 }", "provider.a.limits"),
            ("[provider.a]\nkind = 'e2b'\ntarget = 'eu'", "provider.a.target"),
            ("[provider.a]\nkind = 'e2b'\nnetwork = 'wifi'", "provider.a.network"),
            ("[provider.a]\nkind = 'e2b'\napi_url = 'here'", "provider.a.api_url"),
            ("[provider.a]\nkind = 'daytona'\ntimeout_s = 5", "provider.a.timeout_s"),
            ("[provider.a]\nkind = 'daytona'\ndomain = 'x'", "provider.a.domain"),
            ("[provider.a]\nkind = 'agentbay'\nnetwork = 'none'", "provider.a.network"),
            ("[provider.a]\nkind = 'agentbay'\nimage = 'a'\ntemplate = 'b'", "provider.a.image"),
            ("[provider.a]\nkind = 'local'\napi_url = 'x'", "provider.a.api_url"),
            ("[provider.a]\nkind = 'local'\nimage = 'x'", "provider.a.image"),
            ("[provider.a]\nkind = 'local'\ntemplate = 'x'", "provider.a.template"),
            ("[provider.a]\nkind = 'local'\nnetwork = 'none'", "provider.a.network"),
            ("[provider.a]\nkind = 'local'\nuser = 'a:1:1'", "provider.a.user"),
            ("[provider.a]\nkind = 'local'\nmount_path = '/w'", "provider.a.mount_path"),
            ("[provider.a]\nkind = 'local'\nlimits = { tmp = '1MiB' }", "provider.a.limits.tmp"),
            ("[provider.a]\nkind = 'namespace'\nnetwork = 'bridge'", "provider.a.network"),
            ("[provider.a]\nkind = 'namespace'\nuser = 'root'", "provider.a.user"),
            ("[provider.a]\nkind = 'namespace'\nmount_path = 'w'", "provider.a.mount_path"),
            ("[provider.a]\nkind = 'namespace'\nread_only = ['/nonexistent/x']", "provider.a.read_only"),
            ("[provider.a]\nkind = 'namespace'\non_exit = 'stop'", "provider.a.on_exit"),
            ("[provider.a]\nkind = 'namespace'\nlimits = { memory = '2 apples' }", "provider.a.limits.memory"),
            ("[provider.a]\nkind = 'namespace'\nlimits = { memory = 0 }", "provider.a.limits.memory"),
            ("[provider.a]\nkind = 'namespace'\nlimits = { cpu = 0 }", "provider.a.limits.cpu"),
            ("[provider.a]\nkind = 'namespace'\nlimits = { processes = 0 }", "provider.a.limits.processes"),
            ("[provider.a]\nkind = 'namespace'\nlimits = { disk = 1 }", "disk"),
            ("[provider.'a b']\nkind = 'local'", "provider.a b"),
            ("[provider.a]", "kind"),
            ("[server]\nlisten = 'here'", "server.listen"),
            ("[server]\nallowed_hosts = ['http://a']", "server.allowed_hosts"),
            ("[server]\nmax_connections = 0", "server.max_connections"),
            ("[server]\nhead_timeout_s = 0", "server.head_timeout_s"),
            ("[server]\nbody_timeout_s = 100000", "server.body_timeout_s"),
            ("[server]\nlog_format = 'xml'", "server.log_format"),
            ("[server]\ncolour = 'red'", "colour"),
            ("[agents]\nallowed_roots = ['code']", "agents.allowed_roots"),
            ("[agents]\nidle_timeout_s = 0", "agents.idle_timeout_s"),
            ("[agents]\ncolour = 1", "colour"),
            ("[agent.toy]\ncommand = ['toy']\ntransport = 'tcp'", "agent.toy"),
            ("[agent.codex]\ncolour = 1", "agent.codex"),
            ("[projects]\nmax_projects = 0", "projects.max_projects"),
            ("[projects]\nmax_projects = 10000000", "projects.max_projects"),
            ("[projects]\nstop_on_disconnect = 'maybe'", "stop_on_disconnect"),
            ("[projects]\ncolour = 'red'", "colour"),
            ("[projects]\ncleanup_after_days = 0", "projects.cleanup_after_days"),
            ("[projects]\ncleanup_warning_days = 40000", "projects.cleanup_warning_days"),
            ("[projects]\ncleanup_warning_days = 30", "projects.cleanup_warning_days"),
            ("[projects]\ncleanup_check_interval_s = 0", "projects.cleanup_check_interval_s"),
            ("[projects]\ntrash_hours = 0", "projects.trash_hours"),
            ("[projects]\nsnapshot_ttl_days = 0", "projects.snapshot_ttl_days"),
            ("[projects]\nwebhook_url = 'https://h/x'", "projects.webhook_secret"),
            ("[projects]\nwebhook_secret = 'x'", "projects.webhook_url"),
            ("[projects]\nwebhook_url = 'ftp://h/x'\nwebhook_secret = 'x'", "projects.webhook_url"),
            ("[memory]\nsnapshot_interval_s = 0", "memory.snapshot_interval_s"),
            ("[memory]\nhot_limit = '3 apples'", "memory.hot_limit"),
            ("[memory]\nvalue_limit = '1GiB'", "memory.value_limit"),
            ("[memory]\ncolour = 'red'", "colour"),
            ("[routes]\n'/m/' = 'disk'", "routes.\"/m/\""),
            ("[routes]\nm = 'store'", "routes.\"m\""),
            ("[routes]\n'/m' = { type = 'filesystem', root = '../x' }", "routes.\"/m\""),
        ];
        for (text, key) in cases {
            let error = Config::parse(text, "stead.toml", &ground()).expect_err(text).to_string();
            assert!(error.contains(key) && error.contains("stead.toml"), "{text}\n{error}");
        }
    }

    #[test]
    fn the_examples_are_configurations_and_say_what_holds_without_them() {
        let bare = Config::load(None, &ground()).unwrap();
        let same = |other: &Config| {
            let of = |config: &Config| {
                let settings = format!("{:?} {:?} {:?}", config.server, config.projects, config.upkeep);
                let settings = format!("{settings} {:?} {:?}", config.memory, config.routes);
                (names(config), config.treatments.clone(), settings)
            };
            let said = |config: &Config| ServerConfig { listen_chosen: false, ..config.server.clone() };
            let other = Config { server: said(other), providers: other.providers.clone(), ..clone_of(other) };
            assert_eq!(of(&other), of(&bare));
        };
        same(&Config::parse(&reference::as_toml(), "stead.example.toml", &ground()).unwrap());
        let written = reference::as_variables();
        let settings = written.lines().filter_map(|line| line.strip_prefix("# STEAD_")?.split_once('='));
        // Those whose default is to be absent are given as examples only.
        let absent = ["DEFAULT_PROVIDER", "MEMORY", "PROCESSES", "CPU", "TTL_DAYS", "WEBHOOK_URL", "WEBHOOK_SECRET"];
        let given = settings.filter(|(name, _)| !absent.iter().any(|absent| name.ends_with(absent)));
        let given: Vec<_> = given.map(|(name, value)| (format!("STEAD_{name}"), value.to_owned())).collect();
        let (routes, mut variables): (Vec<_>, Vec<_>) = given.into_iter().partition(|(name, _)| name == "STEAD_ROUTES");
        variables.extend(routes.first().cloned());
        same(&Config::load(None, &Ground { variables, ..ground() }).unwrap());
        // The recommended table and two others, the same in both files.
        let toml = reference::as_toml();
        let blocks = toml.split("\n#\n").filter(|block| block.contains("\n#   \"/"));
        let others = blocks.map(|block| {
            let lines = block.lines().filter_map(|line| line.strip_prefix("#   ").filter(|line| line.starts_with('"')));
            format!("[routes]\n{}", lines.collect::<Vec<_>>().join("\n"))
        });
        let others: Vec<_> =
            others.map(|text| Config::parse(&text, "stead.example.toml", &ground()).unwrap().routes).collect();
        let read = |variable: &(String, String)| {
            Config::load(None, &Ground { variables: vec![variable.clone()], ..ground() }).unwrap().routes
        };
        assert_eq!(routes.iter().skip(1).map(read).collect::<Vec<_>>(), others);
        assert_eq!(others.len(), 2);
        assert!(!written.contains("# \"/") && !written.contains("#   \"/"), "{written}");
    }

    fn clone_of(config: &Config) -> Config {
        Config {
            providers: config.providers.clone(),
            treatments: config.treatments.clone(),
            server: config.server.clone(),
            agents: config.agents.clone(),
            projects: config.projects.clone(),
            upkeep: config.upkeep.clone(),
            memory: config.memory,
            routes: Arc::clone(&config.routes),
            default_provider: config.default_provider.clone(),
            possible: config.possible.clone(),
            engines: config.engines.clone(),
            fallback: config.fallback.clone(),
        }
    }

    /// A setting that is read and not in the reference would be one that nobody finds.
    #[test]
    fn every_setting_that_is_read_is_in_the_reference() {
        let texts = [
            include_str!("config.rs"),
            include_str!("config/docker.rs"),
            include_str!("config/clouds.rs"),
            include_str!("config/server.rs"),
            include_str!("config/agents.rs"),
            include_str!("config/projects.rs"),
            include_str!("config/memory.rs"),
        ];
        let text: String = texts.iter().filter_map(|text| text.split("#[cfg(test)]").next()).collect();
        let mut keys = Vec::new();
        for block in text.split("#[serde(deny_unknown_fields)]").skip(1) {
            let fields =
                block.split_once('{').map_or("", |(_, rest)| rest.split_once("\n}").map_or("", |(body, _)| body));
            keys.extend(
                fields.lines().filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name.to_owned())),
            );
        }
        keys.retain(|key| {
            !key.starts_with("//")
                && !["provider", "server", "projects", "memory", "routes", "agents", "agent", "limits", "template"]
                    .contains(&key.as_str())
        });
        assert!(keys.len() > 15, "{keys:?}");
        let reference = reference::as_toml();
        for key in keys {
            let there = reference.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")));
            assert!(there, "`{key}` is not in the reference");
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        for (text, bytes) in [("5", 5), ("1KiB", 1024), ("2GiB", 2 << 30), ("3 MiB", 3 << 20)] {
            assert_eq!(read_size(text), Some(bytes), "{text}");
        }
        for text in ["", "GiB", "1GB", "-1", "1.5GiB", "99999999TiB"] {
            assert_eq!(read_size(text), None, "{text}");
        }
    }
}
