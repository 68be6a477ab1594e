use super::*;

/// Edits the text `one` by this command line in a new directory. Returns the outcome, and the files that are left.
fn edit(command: Option<&str>) -> (Result<String, String>, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let lent = AtomicBool::new(false);
    let edited = Editor::new(command, directory.path()).edit("one", &AtomicBool::new(false), &lent);
    assert!(!lent.load(Ordering::Relaxed), "the terminal is taken back");
    (edited, left_in(directory.path()))
}

/// The contents of the files of a directory.
fn left_in(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).expect("the directory").map(|file| file.expect("a file").path());
    files.map(|path| String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned()).collect()
}

#[test]
fn the_text_of_the_editor_takes_the_place_of_the_typed_one() {
    let (edited, left) = edit(Some("sed -i s/one/two/"));
    assert_eq!((edited.as_deref(), left.len()), (Ok("two"), 0), "the draft is deleted");
    for (command, why) in [
        (Some("false"), "false ended with"),
        (Some("/no/such/editor"), "does not start"),
        (Some("rm"), "cannot be read"),
        (None, "VISUAL or EDITOR"),
    ] {
        let (edited, left) = edit(command);
        assert!(edited.is_err_and(|said| said.contains(why)) && left.is_empty(), "{command:?}");
    }
}

#[test]
fn a_text_that_is_no_utf8_is_kept() {
    let (edited, left) = edit(Some(r"sed -i s/one/\xff/"));
    assert!(edited.is_err_and(|why| why.contains("The edited text is in /")));
    assert_eq!(left, ["\u{fffd}"]);
}

#[test]
fn a_stop_lets_the_editor_complete_its_file_which_is_kept() {
    let (directory, scripts) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (script, ready) = (scripts.path().join("editor"), scripts.path().join("ready"));
    let lines = "trap 'echo saved > \"$2\"; exit' TERM\n: > \"$1\"\nwhile :; do sleep 0.01; done\n";
    fs::write(&script, lines).expect("a script");
    let editor = Editor::new(Some(&format!("sh {} {}", script.display(), ready.display())), directory.path());
    let (stop, lent) = (AtomicBool::new(false), AtomicBool::new(false));
    let edited = thread::scope(|threads| {
        threads.spawn(|| {
            while !ready.exists() {
                thread::sleep(LOOK_AGAIN);
            }
            let is_lent = lent.load(Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
            assert!(is_lent, "its Ctrl-C is not for this process");
        });
        editor.edit("one", &stop, &lent)
    });
    assert!(edited.is_err_and(|why| why.contains("Its text is in /")));
    assert!(!lent.load(Ordering::Relaxed));
    assert_eq!(left_in(directory.path()), ["saved\n"]);
    assert_eq!(Draft::new(directory.path(), "two").map(|draft| draft.is_kept).ok(), Some(false), "under a free name");
    assert_eq!(left_in(directory.path()), ["saved\n"], "the kept file stays");
}
