//! What a command of the campaign does: its text, and what follows from the text alone.

/// Where a thread's commands find their files.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The workspace as a command calls it: on `local` it is the real directory.
    pub(super) workspace: String,
    /// The file that each run adds its id to.
    pub(super) runs: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// Prints lines and ends.
    Lines { count: u32, code: u8 },
    /// Prints a line, takes its time, prints another.
    Slow { ms: u64, code: u8 },
    /// Prints a line and never ends by itself.
    Endless,
    /// Ends its shell.
    Exit { code: u8 },
    /// Goes to a directory of this number.
    Enter { dir: u32 },
    /// Writes more than pipes hold. Byte 255 is no UTF-8.
    Bulk { bytes: u32, byte: u8 },
}

impl Body {
    /// The text: it counts its run in a file, and in a variable that belongs to the terminal's state.
    pub(super) fn text(&self, id: &str, place: &Place) -> String {
        let (workspace, runs) = (&place.workspace, &place.runs);
        let rest = match self {
            Self::Lines { count, code } => {
                format!("for i in $(seq {count}); do echo \"{id} $i ü\"; done; echo n=$N >&2; (exit {code})")
            }
            Self::Slow { ms, code } => {
                let (seconds, thousandths) = (ms / 1000, ms % 1000);
                format!(
                    "echo {id} before; sleep {seconds}.{thousandths:03}; echo {id} after; echo n=$N >&2; (exit {code})"
                )
            }
            Self::Endless => format!("echo {id} before; echo n=$N >&2; sleep 1000; echo {id} never"),
            Self::Exit { code } => format!("echo {id} leaves; echo n=$N >&2; exit {code}"),
            Self::Enter { dir } => format!(
                "mkdir -p {workspace}/d{dir} && cd {workspace}/d{dir}; echo {id} goes; echo n=$N >&2; [ $N -gt 0 ]"
            ),
            Self::Bulk { bytes, byte } => {
                format!("head -c {bytes} /dev/zero | tr '\\0' '\\{byte:03o}'; echo n=$N >&2; (exit 0)")
            }
        };
        format!("echo {id} >>{runs}; export N=$((${{N:-0}}+1)); {rest}")
    }

    /// All that it writes to its standard output if nothing stops it.
    pub(super) fn stdout(&self, id: &str) -> Vec<u8> {
        match self {
            Self::Lines { count, .. } => {
                (1..=*count).flat_map(|line| format!("{id} {line} ü\n").into_bytes()).collect()
            }
            Self::Slow { .. } => format!("{id} before\n{id} after\n").into_bytes(),
            Self::Endless => format!("{id} before\n").into_bytes(),
            Self::Exit { .. } => format!("{id} leaves\n").into_bytes(),
            Self::Enter { .. } => format!("{id} goes\n").into_bytes(),
            Self::Bulk { bytes, byte } => vec![*byte; usize::try_from(*bytes).unwrap_or(0)],
        }
    }

    /// The code that it ends with by itself; `None`: it doesn't.
    pub(super) fn code(&self) -> Option<u8> {
        match self {
            Self::Lines { code, .. } | Self::Slow { code, .. } | Self::Exit { code } => Some(*code),
            Self::Enter { .. } | Self::Bulk { .. } => Some(0),
            Self::Endless => None,
        }
    }

    pub(super) fn ends_shell(&self) -> bool {
        matches!(self, Self::Exit { .. })
    }

    /// Where the terminal is afterwards, if it moved, by the name that records have.
    pub(super) fn cwd(&self) -> Option<String> {
        match self {
            Self::Enter { dir } => Some(format!("/workspace/d{dir}")),
            Self::Lines { .. } | Self::Slow { .. } | Self::Endless | Self::Exit { .. } | Self::Bulk { .. } => None,
        }
    }
}

/// What a command writes to its standard error when the counter has become `counter`.
pub(super) fn stderr(counter: u64) -> Vec<u8> {
    format!("n={counter}\n").into_bytes()
}
