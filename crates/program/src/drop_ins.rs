//! The places of a systemd unit's drop-ins.
//!
//! Source: systemd.unit(5), "Unit File Load Path" and "drop-in".

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The directories of system units in systemd's order; an earlier one has precedence. The first one is the operator's.
const PLACES: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// The directories of packages. What an operator writes there is lost on an upgrade of the package.
const OF_PACKAGES: [&str; 2] = ["usr/lib/systemd/system", "lib/systemd/system"];

/// The directory for a drop-in by the operator: in `/etc` for the unit of a package, else beside the unit.
pub fn of_operator(unit: &Path) -> PathBuf {
    of_operator_below(Path::new("/"), unit)
}

/// The drop-ins of a unit, in the order in which systemd reads them.
///
/// A drop-in in a directory with precedence hides one with the same name in another directory.
pub fn files(unit: &Path) -> Vec<PathBuf> {
    files_below(Path::new("/"), unit)
}

fn of_operator_below(root: &Path, unit: &Path) -> PathBuf {
    let unit = absolute(unit);
    let name = directory_name(&unit);
    if OF_PACKAGES.iter().any(|place| unit.starts_with(root.join(place))) {
        return root.join(PLACES[0]).join(name);
    }
    unit.with_file_name(name)
}

fn files_below(root: &Path, unit: &Path) -> Vec<PathBuf> {
    let unit = absolute(unit);
    let name = directory_name(&unit);
    let places = PLACES.map(|place| root.join(place));
    let is_system = unit.parent().is_some_and(|parent| places.iter().any(|place| place == parent));
    let mut directories = vec![of_operator_below(root, &unit), unit.with_file_name(&name)];
    if is_system {
        directories = places.iter().map(|place| place.join(&name)).collect();
    }
    // Sorted by name, whatever the directory.
    let mut found = BTreeMap::new();
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|end| end == "conf") {
                found.entry(path.file_name().map(ToOwned::to_owned)).or_insert(path);
            }
        }
    }
    found.into_values().collect()
}

fn absolute(unit: &Path) -> PathBuf {
    std::path::absolute(unit).unwrap_or_else(|_| unit.to_owned())
}

/// `NAME.service.d`.
fn directory_name(unit: &Path) -> OsString {
    let mut name = unit.file_name().unwrap_or_default().to_owned();
    name.push(".d");
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_operators_drop_in_of_a_packages_unit_is_in_etc() {
        for (unit, directory) in [
            ("/usr/lib/systemd/system/belay.service", "/etc/systemd/system/belay.service.d"),
            ("/lib/systemd/system/b.service", "/etc/systemd/system/b.service.d"),
            ("/etc/systemd/system/belay.service", "/etc/systemd/system/belay.service.d"),
            ("/usr/local/lib/systemd/system/b.service", "/usr/local/lib/systemd/system/b.service.d"),
            ("/usr/libexec/b.service", "/usr/libexec/b.service.d"),
            ("/u/belay.service", "/u/belay.service.d"),
        ] {
            assert_eq!(of_operator(Path::new(unit)), Path::new(directory), "{unit}");
        }
    }

    #[test]
    fn drop_ins_of_all_places_are_read_by_name_and_the_operators_hides_the_packages() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let unit = write("usr/lib/systemd/system/b.service");
        let packaged = write("usr/lib/systemd/system/b.service.d/20.conf");
        write("usr/lib/systemd/system/b.service.d/30.conf");
        write("usr/lib/systemd/system/other.service.d/10.conf");
        write("etc/systemd/system/b.service.d/notes.txt");
        let early = write("etc/systemd/system/b.service.d/10.conf");
        let hiding = write("etc/systemd/system/b.service.d/30.conf");
        let local = write("usr/local/lib/systemd/system/b.service.d/25.conf");
        assert_eq!(files_below(root.path(), &unit), [early, packaged, local, hiding]);
        // systemd loads no unit from there, so only what lies beside it counts.
        let (elsewhere, beside) = (write("home/b.service"), write("home/b.service.d/a.conf"));
        assert_eq!(files_below(root.path(), &elsewhere), [beside]);
    }
}
