//! The command line of the launcher. The daemon writes it and the launcher parses it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::sandbox::config::{Landlock, SandboxConfig};

/// What the launcher does before it executes the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) confinement: Confinement,
    /// Resource limits; `None`: the current limits stay. In the sandbox there are always limits.
    pub(crate) limits: Option<Limits>,
    /// The open descriptor of the sealed copy that is executed instead of the program's file.
    pub(crate) sealed: Option<i32>,
    /// The program and its arguments; never empty.
    pub(crate) argv: Vec<OsString>,
}

/// The restrictions that the launcher applies to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// None. It only ensures that it does not outlive its parent process.
    Bare {
        /// Id of the parent process, if given.
        parent: Option<u32>,
    },
    /// None. It only enters this control group and then starts the program that builds the sandbox.
    Group(PathBuf),
    /// Landlock and the system call filter, inside the sandbox that bubblewrap has created.
    Inside {
        landlock: Landlock,
        files: Files,
        /// TCP ports to which the command may connect; `None`: only the network namespace restricts them.
        ports: Option<Vec<u16>>,
    },
}

/// The files that may be written, in addition to temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    Readonly,
    Workspace,
    All,
}

/// Resource limits of each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) memory_mb: u64,
    pub(crate) processes: u64,
    pub(crate) open_files: u64,
    pub(crate) file_mb: u64,
    pub(crate) cpu_s: u64,
}

impl From<&SandboxConfig> for Limits {
    fn from(config: &SandboxConfig) -> Self {
        let SandboxConfig { memory_mb, processes, open_files, file_mb, cpu_s, .. } = *config;
        Self { memory_mb, processes, open_files, file_mb, cpu_s }
    }
}

impl Stage {
    /// The arguments of the launcher, beginning with `launch`.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["launch".into()];
        if matches!(self.confinement, Confinement::Bare { .. }) {
            args.push("--bare".into());
        }
        let mut option = |name: &str, value: OsString| args.extend([OsString::from(name), value]);
        match &self.confinement {
            Confinement::Bare { parent: None } => {}
            Confinement::Bare { parent: Some(parent) } => option("--parent", parent.to_string().into()),
            Confinement::Group(directory) => option("--group", directory.into()),
            Confinement::Inside { landlock, files, ports } => {
                option("--files", files.word().into());
                option("--landlock", landlock_word(*landlock).into());
                if let Some(ports) = ports {
                    option("--ports", ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",").into());
                }
            }
        }
        if let Some(limits) = &self.limits {
            option("--memory-mb", limits.memory_mb.to_string().into());
            option("--processes", limits.processes.to_string().into());
            option("--open-files", limits.open_files.to_string().into());
            option("--file-mb", limits.file_mb.to_string().into());
            option("--cpu-s", limits.cpu_s.to_string().into());
        }
        if let Some(number) = self.sealed {
            option("--sealed", number.to_string().into());
        }
        args.push("--".into());
        args.extend(self.argv.iter().cloned());
        args
    }

    /// Parses the arguments after `launch`.
    ///
    /// # Errors
    /// The problem with the arguments. Nothing is ignored, because a missing restriction would not be noticed.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut options = Options::default();
        loop {
            let name = args.next().ok_or("no program is given: give it after --")?;
            if name == "--" {
                break;
            }
            if name == "--bare" {
                options.bare = true;
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{} needs a value", name.display()))?;
            options.take(&name, &value)?;
        }
        let argv: Vec<_> = args.collect();
        if argv.is_empty() {
            return Err("no program is given: give it after --".to_owned());
        }
        let limits = options.limits()?;
        let sealed = options.sealed;
        let confinement = options.confinement()?;
        if limits.is_none() && matches!(confinement, Confinement::Inside { .. }) {
            return Err("limits are missing".to_owned());
        }
        if sealed.is_some() && matches!(confinement, Confinement::Group(_)) {
            return Err("--sealed does not go with --group".to_owned());
        }
        Ok(Self { confinement, limits, sealed, argv })
    }
}

/// The parsed options, before it is checked that all are present.
#[derive(Default)]
struct Options {
    bare: bool,
    parent: Option<u32>,
    group: Option<PathBuf>,
    files: Option<Files>,
    landlock: Option<Landlock>,
    ports: Option<Vec<u16>>,
    sealed: Option<i32>,
    memory_mb: Option<u64>,
    processes: Option<u64>,
    open_files: Option<u64>,
    file_mb: Option<u64>,
    cpu_s: Option<u64>,
}

impl Options {
    fn take(&mut self, name: &OsStr, value: &OsStr) -> Result<(), String> {
        if name == "--group" {
            self.group = Some(value.into());
            return Ok(());
        }
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let bad = || format!("{name} does not take {value:?}");
        let number = || value.parse().map(Some).map_err(|_| bad());
        match &*name {
            "--parent" => self.parent = Some(value.parse().map_err(|_| bad())?),
            "--files" => self.files = Some(Files::from_word(&value).ok_or_else(bad)?),
            "--landlock" => self.landlock = Some(landlock_from_word(&value).ok_or_else(bad)?),
            "--ports" => {
                let ports: Result<_, _> = value.split(',').map(str::parse).collect();
                self.ports = Some(ports.map_err(|_| bad())?);
            }
            "--sealed" => {
                self.sealed = Some(value.parse().ok().filter(|number| *number > 2).ok_or_else(bad)?);
            }
            "--memory-mb" => self.memory_mb = number()?,
            "--processes" => self.processes = number()?,
            "--open-files" => self.open_files = number()?,
            "--file-mb" => self.file_mb = number()?,
            "--cpu-s" => self.cpu_s = number()?,
            _ => return Err(format!("{name} is no option of it")),
        }
        Ok(())
    }

    fn confinement(self) -> Result<Confinement, String> {
        match (self.bare, self.group, self.files, self.landlock) {
            (true, None, None, None) => Ok(Confinement::Bare { parent: self.parent }),
            (false, Some(directory), None, None) => Ok(Confinement::Group(directory)),
            (false, None, Some(files), Some(landlock)) => {
                Ok(Confinement::Inside { landlock, files, ports: self.ports })
            }
            _ => Err("either --bare is given, or --group, or --files and --landlock".to_owned()),
        }
    }

    /// Requires all limits or none.
    fn limits(&self) -> Result<Option<Limits>, String> {
        let given = [self.memory_mb, self.processes, self.open_files, self.file_mb, self.cpu_s];
        if given.iter().all(Option::is_none) {
            return Ok(None);
        }
        let needed = |name: &str, value: Option<u64>| value.ok_or_else(|| format!("--{name} is missing"));
        Ok(Some(Limits {
            memory_mb: needed("memory-mb", self.memory_mb)?,
            processes: needed("processes", self.processes)?,
            open_files: needed("open-files", self.open_files)?,
            file_mb: needed("file-mb", self.file_mb)?,
            cpu_s: needed("cpu-s", self.cpu_s)?,
        }))
    }
}

impl Files {
    fn word(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::Workspace => "workspace",
            Self::All => "all",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Readonly, Self::Workspace, Self::All].into_iter().find(|files| files.word() == word)
    }
}

fn landlock_word(landlock: Landlock) -> &'static str {
    match landlock {
        Landlock::Required => "required",
        Landlock::Optional => "optional",
    }
}

fn landlock_from_word(word: &str) -> Option<Landlock> {
    [Landlock::Required, Landlock::Optional].into_iter().find(|landlock| landlock_word(*landlock) == word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn limits() -> Limits {
        Limits::from(&SandboxConfig::default())
    }

    #[test]
    fn arguments_survive_a_round_trip() {
        let inside = |landlock, files, ports| Confinement::Inside { landlock, files, ports };
        for confinement in [
            Confinement::Bare { parent: None },
            Confinement::Bare { parent: Some(77) },
            Confinement::Group("/sys/fs/cgroup/a b".into()),
            inside(Landlock::Required, Files::Readonly, None),
            inside(Landlock::Optional, Files::Workspace, Some(vec![443])),
            inside(Landlock::Required, Files::All, Some(vec![53, 80, 443])),
        ] {
            let argv = vec!["--strange".into(), "--".into(), OsString::from("a b")];
            let sealed = matches!(confinement, Confinement::Inside { .. }).then_some(7);
            let stage = Stage { confinement, limits: Some(limits()), sealed, argv };
            let args = stage.to_args();
            assert_eq!(args[0], "launch");
            assert_eq!(Stage::parse(args.into_iter().skip(1)), Ok(stage));
        }
    }

    #[test]
    fn without_a_sandbox_limits_are_optional() {
        let args = ["--bare", "--", "true"].map(OsString::from);
        let stage = Stage {
            confinement: Confinement::Bare { parent: None },
            limits: None,
            sealed: None,
            argv: vec!["true".into()],
        };
        assert_eq!(Stage::parse(args), Ok(stage.clone()));
        assert_eq!(stage.to_args(), ["launch", "--bare", "--", "true"]);
    }

    #[test]
    fn whatever_is_not_understood_is_refused() {
        let limits = "--memory-mb 1 --processes 2 --open-files 3 --file-mb 4 --cpu-s 5";
        for (line, problem) in [
            (String::new(), "no program"),
            (format!("--bare {limits} --"), "no program"),
            (format!("--bare {limits}"), "no program"),
            (format!("--bare --parent me {limits} -- true"), "--parent does not take"),
            ("--files all --landlock required -- true".to_owned(), "limits are missing"),
            (format!("{limits} -- true"), "either --bare"),
            (format!("--files all {limits} -- true"), "either --bare"),
            (format!("--bare --files all --landlock required {limits} -- true"), "either --bare"),
            (format!("--bare --group /sys/fs/cgroup {limits} -- true"), "either --bare"),
            (format!("--files some --landlock required {limits} -- true"), "--files does not take"),
            (format!("--files all --landlock maybe {limits} -- true"), "--landlock does not take"),
            (format!("--files all --landlock required --ports 70000 {limits} -- true"), "--ports does not take"),
            ("--bare --memory-mb 1 -- true".to_owned(), "--processes is missing"),
            ("--bare --memory-mb".to_owned(), "--memory-mb needs a value"),
            (format!("--bare --sealed 2 {limits} -- true"), "--sealed does not take"),
            (format!("--group /sys/fs/cgroup --sealed 7 {limits} -- true"), "--sealed does not go with"),
            (format!("--bare --colour red {limits} -- true"), "--colour is no option"),
        ] {
            let refused = Stage::parse(line.split_whitespace().map(OsString::from)).unwrap_err();
            assert!(refused.contains(problem), "{line}: {refused}");
        }
    }
}
