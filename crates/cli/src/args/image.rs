//! Verbs about images of containers.

use super::{AsJson, Place};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use stead_model::ids::ProviderName;

/// Make images for containers on this machine, without a registry.
#[derive(Debug, ClapArgs)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  stead image build               make `stead/base` of busybox
  stead image build --from-host   make it of this machine's bash and tools"
)]
pub(crate) struct Image {
    #[command(subcommand)]
    pub(crate) deed: ImageDeed,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageDeed {
    Build(BuildImage),
}

/// Make an image of what is on this machine, and give it to the engine of a provider of kind `docker`.
///
/// Without a choice it is made of a static busybox: a megabyte, and a shell without arrays. It says which image it made.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead image build                                   `stead/base`, of busybox
  stead image build --from-host --program git         of bash, the usual tools and git, as they are here
  stead image build --debootstrap --name debian-min   a small Debian; needs root, debootstrap and a mirror
  stead image build --root /srv/debian                of a directory with a system in it
  stead image build --if-missing --json               for a script: only what isn't there yet")]
pub(crate) struct BuildImage {
    /// What the image is called, with a tag if it is not `latest`.
    #[arg(long, value_name = "NAME", default_value = stead_server::provider::docker::BASE_IMAGE)]
    pub(crate) name: String,

    /// The provider whose engine gets it, where there are several.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<ProviderName>,

    /// Of this machine's bash and usual tools, with the libraries that they need.
    #[arg(long, conflicts_with = "debootstrap")]
    pub(crate) from_host: bool,

    /// One more program of this machine to take along; can be given several times.
    #[arg(long, value_name = "PROGRAM", requires = "from_host")]
    pub(crate) program: Vec<String>,

    /// Of a directory of this machine with a system in it.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["from_host", "debootstrap"])]
    pub(crate) root: Option<PathBuf>,

    /// A small Debian, made by debootstrap.
    #[arg(long)]
    pub(crate) debootstrap: bool,

    /// Which Debian.
    #[arg(long, value_name = "SUITE", default_value = "stable", requires = "debootstrap")]
    pub(crate) suite: String,

    /// Where it is fetched from. Absent: where debootstrap usually does.
    #[arg(long, value_name = "URL", requires = "debootstrap")]
    pub(crate) mirror: Option<String>,

    /// Do nothing if the engine has an image of that name.
    #[arg(long)]
    pub(crate) if_missing: bool,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) place: Place,
}
