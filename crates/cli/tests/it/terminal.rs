//! `stead shell` as a person sees it, on a pseudo-terminal.

use crate::rig::{PATIENCE, Rig, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::Write;
use std::process::{Child, Command};
use stead_term::pty;

pub(crate) struct Terminal {
    rig: Rig,
    child: Child,
    controller: std::fs::File,
    /// Everything that was shown.
    pub(crate) shown: String,
    /// How much of it the test has looked at.
    seen: usize,
}

impl Terminal {
    fn open() -> Self {
        let rig = Rig::new();
        let stead = rig.stead(["shell"]);
        Self::with(rig, &stead)
    }

    /// `stead` called in this way, on a terminal of its own.
    pub(crate) fn with(rig: Rig, stead: &Command) -> Self {
        let pty::Pty { controller, user } = pty::open(80, 24).unwrap();
        let end = || user.try_clone().unwrap();
        // `setsid -c` becomes `stead` with the terminal as its controlling one, so that Ctrl-C is a signal.
        let mut command = Command::new("setsid");
        command.arg("-c").arg(stead.get_program()).args(stead.get_args()).current_dir(rig.scratch()).env_clear();
        command.envs(stead.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        // With ours open the end of theirs would never be seen.
        drop((command, user));
        Self { rig, child, controller: controller.into(), shown: String::new(), seen: 0 }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.controller.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this is shown behind what was seen before, and gives what stood between.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        loop {
            let fresh = self.shown.get(self.seen..).unwrap_or_default();
            if let Some(at) = fresh.find(text) {
                let between = fresh.get(..at).unwrap_or_default().to_owned();
                self.seen += at + text.len();
                return between;
            }
            assert!(self.read(), "`{text}` is not shown; this is: {}", self.shown);
        }
    }

    /// Takes what is shown next; `false` when nothing more comes.
    #[track_caller]
    pub(crate) fn read(&mut self) -> bool {
        let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.controller, PollFlags::IN)], Some(&patience)).unwrap();
        assert!(ready > 0, "nothing is shown any more; this was: {}", self.shown);
        let mut buffer = [0_u8; 4096];
        match rustix::io::read(&self.controller, &mut buffer) {
            // A terminal that nobody has open any more says so in this way.
            Ok(0) | Err(Errno::IO) => false,
            Ok(read) => {
                self.shown.push_str(&String::from_utf8_lossy(buffer.get(..read).unwrap_or_default()));
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Whether keys are read line by line and shown, as a shell leaves a terminal.
    pub(crate) fn is_sane(&self) -> bool {
        use rustix::termios::LocalModes;
        let modes = rustix::termios::tcgetattr(&self.controller).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// The exit code, once nothing more is shown.
    #[track_caller]
    pub(crate) fn end(&mut self) -> Option<i32> {
        while self.read() {}
        wait(&mut self.child).code()
    }

    #[track_caller]
    fn expect_prompt(&mut self) -> String {
        let prompt = format!("{} $ ", self.rig.scratch().canonicalize().unwrap().display());
        self.expect(&prompt)
    }

    /// Ctrl-D, and then the exit code.
    #[track_caller]
    fn leave(&mut self) -> Option<i32> {
        self.type_in("\x04");
        self.end()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed half-way has it still running; after `leave` there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_prompt_shows_the_directory_and_follows_it() {
    let mut terminal = Terminal::open();
    terminal.expect("shell `default` in a steward at ");
    terminal.expect("; Ctrl-D leaves, the shell stays\r\n");
    terminal.expect_prompt();
    terminal.type_in("cd /usr\n");
    terminal.expect("/usr $ ");
    terminal.type_in("echo a$((20+1))b\n");
    terminal.expect("\r\na21b\r\n/usr $ ");
    assert_eq!(terminal.leave(), Some(0));
}

#[test]
fn a_command_of_several_lines_is_read_to_its_end() {
    let mut terminal = Terminal::open();
    terminal.expect_prompt();
    terminal.type_in("for i in 1 2\n");
    terminal.expect("> ");
    terminal.type_in("do echo \"<$i>\"\n");
    terminal.expect("> ");
    terminal.type_in("done\n");
    terminal.expect("\r\n<1>\r\n<2>\r\n");
    terminal.expect_prompt();
    assert_eq!(terminal.leave(), Some(0));
}

#[test]
fn an_open_quote_and_a_here_document_ask_for_more() {
    let mut terminal = Terminal::open();
    terminal.expect_prompt();
    terminal.type_in("echo 'one\n");
    terminal.expect("> ");
    terminal.type_in("two'\n");
    terminal.expect("\r\none\r\ntwo\r\n");
    terminal.expect_prompt();
    terminal.type_in("cat <<END\n");
    terminal.expect("> ");
    terminal.type_in("inside\n");
    terminal.expect("> ");
    terminal.type_in("END\n");
    terminal.expect("END\r\ninside\r\n");
    terminal.expect_prompt();
}

#[test]
fn control_c_stops_the_command_and_not_the_front() {
    let mut terminal = Terminal::open();
    terminal.expect_prompt();
    terminal.type_in("v=kept; echo be''gun; sleep 1000; echo ne''ver\n");
    terminal.expect("begun\r\n");
    terminal.type_in("\x03");
    assert!(!terminal.expect("[stopped]\r\n").contains("never"), "{}", terminal.shown);
    terminal.expect_prompt();
    terminal.type_in("echo \"<$v>\"\n");
    terminal.expect("\r\n<kept>\r\n");
    terminal.expect_prompt();
    assert_eq!(terminal.leave(), Some(0));
}

#[test]
fn control_d_leaves_with_the_code_of_the_last_command_and_the_shell_stays() {
    let mut terminal = Terminal::open();
    terminal.expect_prompt();
    terminal.type_in("v=kept; (exit 7)\n");
    terminal.expect_prompt();
    assert_eq!(terminal.leave(), Some(7));
    assert_eq!(terminal.rig.shell(&["-c", "echo $v"]).stdout, "kept\n");
}

#[test]
fn a_stopped_command_leaves_its_code() {
    let mut terminal = Terminal::open();
    terminal.expect_prompt();
    terminal.type_in("echo be''gun; sleep 1000\n");
    terminal.expect("begun\r\n");
    terminal.type_in("\x03");
    terminal.expect("[stopped]\r\n");
    terminal.expect_prompt();
    assert_eq!(terminal.leave(), Some(130));
}

#[test]
fn an_empty_line_is_no_command() {
    let mut terminal = Terminal::open();
    terminal.expect_prompt();
    terminal.type_in("(exit 3)\n");
    terminal.expect_prompt();
    terminal.type_in("   \n");
    terminal.expect_prompt();
    terminal.type_in("echo \"<$?>\"\n");
    terminal.expect("<3>\r\n");
}

#[test]
fn a_command_that_leaves_the_shell_is_remarked_on() {
    let mut terminal = Terminal::open();
    terminal.expect_prompt();
    terminal.type_in("v=kept; exit 4\n");
    terminal.expect("[the shell exited; a new one has its state]\r\n");
    terminal.expect_prompt();
    terminal.type_in("echo \"<$v>\"\n");
    terminal.expect("\r\n<kept>\r\n");
    terminal.expect_prompt();
    assert_eq!(terminal.leave(), Some(0));
}
