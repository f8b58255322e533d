//! Providers of kind `docker`.

use super::provider::{At, WrittenProvider, absolute, read_user};
use super::{ConfigError, Ground};
use crate::provider::docker::{Base, ContainerNetwork, Docker, DockerConfig, Root};
use crate::steward_program::{StewardProgram, VARIABLE};
use std::path::PathBuf;
use stead_model::ids::ProviderName;
use stead_term::cgroup::Limits;

impl WrittenProvider {
    pub(super) fn docker(
        self,
        at: &At<'_>,
        name: ProviderName,
        ground: &Ground,
        limits: Limits,
    ) -> Result<Docker, ConfigError> {
        let others = [("template", self.template.is_some()), ("read_only", self.read_only.is_some())];
        if let Some((key, _)) = others.into_iter().find(|(_, given)| *given) {
            return Err(at.wrong(key, "a container has what its image has; kind `docker` knows no such thing"));
        }
        let data = ground.data.join("providers").join(name.as_str());
        let workspaces = ground.data.join("workspaces");
        let sockets = self.sockets(at, ground)?;
        let mut config = DockerConfig::new(name, data, workspaces, sockets, steward(ground));
        config.limits = limits;
        config.tmp_bytes = self.limits.tmp.as_ref().map(|tmp| tmp.read(at, "limits.tmp")).transpose()?;
        config.read_only_root = self.read_only_root.unwrap_or(false);
        config.network = match self.network.as_deref() {
            None | Some("bridge") => ContainerNetwork::Bridge,
            Some("host") => ContainerNetwork::Host,
            Some("none") => ContainerNetwork::None,
            Some(other) => {
                return Err(at.wrong("network", &format!("`{other}` is none of `bridge`, `host`, `none`")));
            }
        };
        if let Some(user) = &self.user {
            let wrong = || at.wrong("user", &format!("`{user}` is not `NAME:UID:GID`, as in `agent:1000:1000`"));
            config.user = Some(read_user(user).ok_or_else(wrong)?);
        }
        if let Some(path) = self.mount_path {
            config.mount_path = absolute(at, "mount_path", path)?;
        }
        if let Some(root) = self.root {
            if self.image.is_some() {
                return Err(at.wrong("root", "containers are made of it or of `image`, not of both"));
            }
            config.base = Base::Root(Root::new(absolute(at, "root", root)?));
        }
        if let Some(image) = self.image {
            let sensible =
                !image.is_empty() && !image.starts_with('-') && image.bytes().all(|byte| byte.is_ascii_graphic());
            if !sensible {
                return Err(at.wrong("image", "that is no name of an image"));
            }
            config.base = Base::Image(image);
        }
        Ok(Docker::new(config))
    }

    /// Where engines listen: as it is written, else as everybody says it, else where they usually do.
    pub(super) fn sockets(&self, at: &At<'_>, ground: &Ground) -> Result<Vec<PathBuf>, ConfigError> {
        if let Some(socket) = &self.socket {
            let path = socket.strip_prefix("unix://").unwrap_or(socket);
            return Ok(vec![absolute(at, "socket", PathBuf::from(path))?]);
        }
        let said = ground.environment.get("DOCKER_HOST").and_then(|host| host.strip_prefix("unix://"));
        if let Some(path) = said {
            return Ok(vec![PathBuf::from(path)]);
        }
        let own = ground.environment.get("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("podman/podman.sock"));
        let usual = ["/var/run/docker.sock", "/run/podman/podman.sock"].map(PathBuf::from);
        Ok(usual.into_iter().chain(own).collect())
    }
}

/// What is put into containers and into the sandboxes of clouds.
pub(super) fn steward(ground: &Ground) -> StewardProgram {
    let named = ground.environment.get(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    StewardProgram::new(named, &ground.program.path, ground.steward, &ground.data)
}
