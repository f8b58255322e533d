//! What a container is made of.

use super::super::namespace::tmp_within;
use super::super::{Blueprint, Handle};
use super::{ContainerNetwork, Docker};
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountBindOptions, MountBindOptionsPropagationEnum,
    MountType, RestartPolicy, RestartPolicyNameEnum,
};
use sha2::Digest;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use stead_model::enclosure::{Network, PLACE, PROGRAM, TMP_BYTES, User};
use stead_model::ids::{InstanceId, LeaseId};
use stead_term::cgroup::Limits;

pub(super) const INSTANCE: &str = "stead.instance";
pub(super) const LEASE: &str = "stead.lease";
pub(super) const GENERATION: &str = "stead.generation";
pub(super) const WORKSPACE: &str = "stead.workspace";
pub(super) const PROVIDER: &str = "stead.provider";
pub(super) const OWNER: &str = "stead.owner";

/// What a root inside needs to install packages and to serve: to own and change files of other users (CHOWN,
/// `DAC_OVERRIDE`, FOWNER, FSETID, SETFCAP), to become them (SETUID, SETGID) and to end what they run (KILL), and ports
/// below 1024. Everything else is dropped: no devices, no raw network, no mounts, no tracing of other users.
const CAPABILITIES: [&str; 9] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETUID"];

/// Shared memory, if nothing limits memory: what engines give.
const SHM_BYTES: u64 = 64 << 20;

/// What the first process may say before the oldest is dropped; whoever is inside can make it speak.
const LOG_BYTES: &str = "1m";

pub(super) fn container_name(instance: &InstanceId) -> String {
    format!("stead-{instance}")
}

/// One name for each data directory, however it is written.
pub(super) fn owner(data: &Path) -> String {
    let path = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    let digest = sha2::Sha256::digest(path.as_os_str().as_encoded_bytes());
    digest.iter().take(8).fold(String::new(), |name, byte| name + &format!("{byte:02x}"))
}

/// Whose container it is, by its labels.
pub(super) fn handle_of(labels: &HashMap<String, String>) -> Option<Handle> {
    let instance = InstanceId::parse(labels.get(INSTANCE)?).ok()?;
    Some(Handle {
        reference: container_name(&instance),
        instance,
        lease: LeaseId::parse(labels.get(LEASE)?).ok()?,
        workspace: labels.get(WORKSPACE)?.clone(),
    })
}

impl Docker {
    /// A project's own stand above the provider's.
    pub(super) fn limits_for(&self, blueprint: &Blueprint) -> Limits {
        let (asked, limits) = (&blueprint.demands, self.config.limits);
        Limits {
            memory: asked.memory.or(limits.memory),
            processes: asked.processes.or(limits.processes),
            cpu_millis: asked.cpu_millis.or(limits.cpu_millis),
        }
    }

    /// A project that wants a network gets the one that is configured, or one of its own where that is none.
    fn network_for(&self, blueprint: &Blueprint) -> &'static str {
        match (blueprint.demands.network, self.config.network) {
            (Some(Network::None), _) | (None, ContainerNetwork::None) => "none",
            (_, ContainerNetwork::Host) => "host",
            (_, ContainerNetwork::Bridge) | (Some(Network::Host), ContainerNetwork::None) => "bridge",
        }
    }

    pub(super) fn recipe(
        &self,
        blueprint: &Blueprint,
        image: String,
        program: &Path,
        user: &User,
    ) -> ContainerCreateBody {
        let labels = [
            (INSTANCE, blueprint.instance.to_string()),
            (LEASE, blueprint.lease.to_string()),
            (GENERATION, blueprint.generation.to_string()),
            (WORKSPACE, blueprint.workspace.clone()),
            (PROVIDER, self.config.name.to_string()),
            (OWNER, self.owner.clone()),
        ];
        let words = [PROGRAM, "keep", "--dir", PLACE, "--alone"];
        ContainerCreateBody {
            image: Some(image),
            // An image's own would run before us, or instead of us.
            entrypoint: Some(words.map(str::to_owned).to_vec()),
            cmd: Some(Vec::new()),
            user: Some(format!("{}:{}", user.uid, user.gid)),
            working_dir: Some("/".to_owned()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
            // The first process hears no signal that it doesn't ask for; whoever stops the container need not wait.
            stop_signal: Some("SIGKILL".to_owned()),
            host_config: Some(self.host_config(blueprint, program)),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self, blueprint: &Blueprint, program: &Path) -> HostConfig {
        let config = &self.config;
        let limits = self.limits_for(blueprint);
        let bytes = limits.memory.map(signed);
        let tmp = config.tmp_bytes.or(config.read_only_root.then_some(TMP_BYTES));
        let mut in_memory: Vec<&str> = Vec::new();
        in_memory.extend(tmp.map(|_| "/tmp"));
        in_memory.extend(["/run", "/var/tmp"].into_iter().filter(|_| config.read_only_root));
        // Shared memory is one more.
        let share = limits.memory.map(|memory| memory / (in_memory.len() as u64 + 1));
        let size = tmp_within(tmp.unwrap_or(0), share);
        let tmpfs: HashMap<String, String> = in_memory
            .into_iter()
            .map(|path| (path.to_owned(), format!("rw,nosuid,nodev,exec,size={size},mode=1777")))
            .collect();
        HostConfig {
            shm_size: share.map(|share| signed(tmp_within(SHM_BYTES, Some(share)))),
            mounts: Some(self.mounts(blueprint, program)),
            network_mode: Some(self.network_for(blueprint).to_owned()),
            memory: bytes,
            // Or what doesn't fit would go to the disk.
            memory_swap: bytes,
            pids_limit: limits.processes.map(signed),
            nano_cpus: limits.cpu_millis.map(|millis| i64::from(millis) * 1_000_000),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            readonly_rootfs: Some(config.read_only_root),
            tmpfs: Some(tmpfs),
            // The keeper reaps; another first process would only stand between.
            init: Some(false),
            // An instance that died is told to be gone, and another is made when somebody needs it.
            restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), ..RestartPolicy::default() }),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(HashMap::from([("max-size".to_owned(), LOG_BYTES.to_owned())])),
            }),
            ..HostConfig::default()
        }
    }

    fn mounts(&self, blueprint: &Blueprint, program: &Path) -> Vec<Mount> {
        let (places, workspace) = (&self.places, &blueprint.workspace);
        let mut all = vec![
            (program.to_owned(), PathBuf::from(PROGRAM), true),
            (places.steward(&blueprint.lease), PathBuf::from(PLACE), false),
            (places.files(workspace), self.config.mount_path.clone(), false),
            (places.home(workspace), self.home(), false),
        ];
        all.extend(places.memories(workspace).into_iter().map(|(host, inside)| (host, inside, false)));
        let mount = |(host, inside, read_only): (PathBuf, PathBuf, bool)| Mount {
            source: Some(std::path::absolute(&host).unwrap_or(host).display().to_string()),
            target: Some(inside.display().to_string()),
            typ: Some(MountType::BIND),
            read_only: Some(read_only),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        };
        all.into_iter().map(mount).collect()
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
