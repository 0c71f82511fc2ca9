use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use zip::ZipArchive;

use super::*;
use crate::config::Config;
use crate::http::Function;
use crate::local::Trigger;

/// A place to work in, with a stand-in for the program.
struct Bench {
    home: tempfile::TempDir,
    more: Vec<(&'static str, String)>,
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut program = b"\x7fELF\x02\x01".to_vec();
        program.resize(18, 0);
        program.extend(b"\x3e\x00 GLIBC_2.17\0");
        std::fs::write(home.path().join("program"), program).unwrap();
        Self { home, more: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn context(&self) -> Context {
        let repository = env!("CARGO_MANIFEST_DIR");
        let mut pairs =
            vec![("ALLUVIUM_ROOT", repository.to_owned()), ("ALLUVIUM_SCHEMAS", format!("{repository}/schemas"))];
        pairs.extend(self.more.iter().cloned());
        Context::new(Config::from_pairs(pairs).unwrap())
    }

    fn args(&self) -> PackageArgs {
        PackageArgs {
            out: self.path("app"),
            binary: Some(self.path("program")),
            with: Vec::new(),
            output: Output::Table,
        }
    }

    fn package(&self) -> Result<Made> {
        make(&self.context(), &self.args())
    }
}

/// Files below a folder with their modes, by path.
fn laid_out(folder: &Path) -> BTreeMap<String, (Vec<u8>, u32)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            found.insert(name, (fs::read(path).unwrap(), mode));
        }
    }
    found
}

fn zipped(zip: &Path) -> BTreeMap<String, (Vec<u8>, u32)> {
    let mut archive = ZipArchive::new(fs::File::open(zip).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    for at in 0..archive.len() {
        let mut file = archive.by_index(at).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let mode = file.unix_mode().unwrap() & 0o777;
        let name = file.name().unwrap().into_owned();
        assert!(found.insert(name.clone(), (bytes, mode)).is_none(), "{name} is there twice");
    }
    found
}

#[test]
fn folder_and_zip_hold_the_same_with_the_right_to_run() {
    let bench = Bench::new();
    assert_eq!(bench.package().unwrap().remarks.len(), 1, "nothing to warn of");
    let mut folder = laid_out(&bench.path("app"));
    assert!(folder.remove(IGNORE_FILE).is_some() && folder.remove(LOCAL_SETTINGS).is_some());
    assert_eq!(folder, zipped(&bench.path("app.zip")));
    assert_eq!(folder["alluvium"].0, fs::read(bench.path("program")).unwrap());
    for (path, (_, mode)) in &folder {
        assert_eq!(*mode, if path == "alluvium" { 0o755 } else { 0o644 }, "{path}");
    }
    let host: Value = serde_json::from_slice(&folder["host.json"].0).unwrap();
    assert_eq!(host["customHandler"]["description"]["defaultExecutablePath"], "alluvium", "the entry's very name");
    assert!(folder.contains_key("schemas/curated/trips_daily.yaml"));
    let first = fs::read(bench.path("app.zip")).unwrap();
    bench.package().unwrap();
    assert_eq!(first, fs::read(bench.path("app.zip")).unwrap(), "the same files make the same zip");
}

#[test]
fn every_function_lands_there_and_has_a_route() {
    let (bench, repository) = (Bench::new(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let context = bench.context();
    let (functions, _) = read_functions(repository, &|name| context.config.lookup(name)).unwrap();
    let is_stream = |trigger: &Trigger| matches!(trigger, Trigger::Stream { .. });
    let streams: Vec<String> = functions
        .iter()
        .filter(|function| is_stream(&function.trigger))
        .map(|function| function.name.clone())
        .collect();
    make(&context, &PackageArgs { with: streams, ..bench.args() }).unwrap();
    let entries = zipped(&bench.path("app.zip"));
    for function in Function::ALL {
        assert!(entries.contains_key(&format!("{}/function.json", function.name())), "{function:?}");
    }
    let (laid_out, _) = read_functions(&bench.path("app"), &|name| context.config.lookup(name)).unwrap();
    assert_eq!(laid_out.len(), Function::ALL.len());
    // Without being asked for, no function comes along that would be in error without its settings.
    bench.package().unwrap();
    let entries = zipped(&bench.path("app.zip"));
    for function in &functions {
        let is_there = entries.contains_key(&format!("{}/function.json", function.name));
        assert_eq!(is_there, !is_stream(&function.trigger), "{}", function.name);
    }
}

#[test]
fn outside_a_clone_the_functions_are_those_of_the_program() {
    let mut bench = Bench::new();
    bench.package().unwrap();
    let from_clone = zipped(&bench.path("app.zip"));
    bench.more.push(("ALLUVIUM_ROOT", bench.path("nowhere").to_str().unwrap().to_owned()));
    bench.package().unwrap();
    assert_eq!(zipped(&bench.path("app.zip")), from_clone);
}

#[test]
fn a_persons_settings_are_kept_and_never_zipped() {
    let bench = Bench::new();
    bench.package().unwrap();
    fs::write(bench.path("app/local.settings.json"), "mine").unwrap();
    bench.package().unwrap();
    assert_eq!(fs::read_to_string(bench.path("app/local.settings.json")).unwrap(), "mine");
    assert!(!zipped(&bench.path("app.zip")).contains_key(LOCAL_SETTINGS));
}

#[test]
fn what_somebody_else_made_is_left_alone() {
    for (file, expected) in [
        ("app/notes.txt", "`alluvium package` did not make this folder"),
        ("app.zip", "`alluvium package` did not make this file"),
    ] {
        let bench = Bench::new();
        fs::create_dir_all(bench.path(file).parent().unwrap()).unwrap();
        fs::write(bench.path(file), "theirs").unwrap();
        let error = bench.package().err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(fs::read_to_string(bench.path(file)).unwrap(), "theirs");
    }
    let bench = Bench::new();
    bench.package().unwrap();
    fs::write(bench.path("app/notes.txt"), "theirs").unwrap();
    let error = bench.package().err().unwrap();
    assert!(error.to_string().contains("`notes.txt` is not of `alluvium package`"), "{error}");
    assert_eq!(fs::read_to_string(bench.path("app/notes.txt")).unwrap(), "theirs");
    let left: Vec<_> = fs::read_dir(bench.home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "nothing half done is left: {left:?}");
}

#[test]
fn what_cannot_be_deployed_says_what_to_do() {
    let bench = Bench::new();
    fs::write(bench.path("script"), "#!/bin/sh").unwrap();
    let error =
        make(&bench.context(), &PackageArgs { binary: Some(bench.path("script")), ..bench.args() }).err().unwrap();
    assert!(error.to_string().ends_with("is no program for Linux on x86-64"), "{error}");
    fs::write(bench.path("new"), [&fs::read(bench.path("program")).unwrap()[..], b"GLIBC_2.41\0"].concat()).unwrap();
    let made = make(&bench.context(), &PackageArgs { binary: Some(bench.path("new")), ..bench.args() }).unwrap();
    assert!(made.remarks[1].contains("needs glibc 2.41"), "{:?}", made.remarks);
    let with = vec!["cdc_pigeon".to_owned()];
    let error = make(&bench.context(), &PackageArgs { with, ..bench.args() }).err().unwrap();
    assert!(error.to_string().starts_with("--with cdc_pigeon"), "{error}");

    let mut bench = Bench::new();
    let schemas = bench.path("schemas/raw");
    fs::create_dir_all(&schemas).unwrap();
    fs::write(schemas.join("t.yaml"), "version: 1\ntable: raw/other\n").unwrap();
    bench.more.push(("ALLUVIUM_SCHEMAS", bench.path("schemas").to_str().unwrap().to_owned()));
    assert!(bench.package().err().unwrap().to_string().starts_with("the contracts have mistakes"));

    for (host, function, expected) in [
        (r#"{"version":"2.0"}"#, "ingest", "host.json: customHandler.description.defaultExecutablePath"),
        (
            r#"{"version":"2.0","customHandler":{"description":{"defaultExecutablePath":"./alluvium"}}}"#,
            "ingest",
            "is no plain file name",
        ),
        (
            r#"{"version":"2.0","customHandler":{"description":{"defaultExecutablePath":"alluvium"}}}"#,
            "other",
            "this program has no function `other`",
        ),
    ] {
        let mut bench = Bench::new();
        fs::create_dir_all(bench.path(&format!("root/functions/{function}"))).unwrap();
        fs::write(bench.path("root/host.json"), host).unwrap();
        fs::write(bench.path(&format!("root/functions/{function}/function.json")), "{}").unwrap();
        bench.more.push(("ALLUVIUM_ROOT", bench.path("root").to_str().unwrap().to_owned()));
        let error = bench.package().err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!bench.path("app").exists() && !bench.path("app.zip").exists());
    }
}

fn settings_of(pairs: &[(&'static str, &str)]) -> Vec<AppSetting> {
    let mut bench = Bench::new();
    bench.more.extend(pairs.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let config = bench.context().config;
    let content = content::gather(&config, &bench.path("program"), &[]).unwrap();
    settings::of(&config, &content.functions).unwrap()
}

fn value_of<'a>(settings: &'a [AppSetting], name: &str) -> Option<&'a str> {
    let setting = settings.iter().find(|setting| setting.name == name).unwrap_or_else(|| panic!("no {name}"));
    setting.value.as_deref()
}

#[test]
fn the_queues_address_is_the_connection_of_the_bindings() {
    let settings = settings_of(&[("AZURE_QUEUE_ACCOUNT_URL", "https://q.example"), ("AZURE_CLIENT_ID", "c-1")]);
    assert_eq!(value_of(&settings, "LakeQueue__queueServiceUri"), Some("https://q.example"));
    assert_eq!(value_of(&settings, "LakeQueue__clientId"), Some("c-1"));
    let settings = settings_of(&[("AZURE_STORAGE_ACCOUNT", "acct"), ("COMMIT_SCHEDULE", "0 * * * * *")]);
    assert_eq!(value_of(&settings, "LakeQueue__queueServiceUri"), Some("https://acct.queue.core.windows.net"));
    assert_eq!(value_of(&settings, "COMMIT_SCHEDULE"), Some("0 * * * * *"));
    assert_eq!(value_of(&settings, "RECONCILE_SCHEDULE"), Some("0 */15 * * * *"));
    assert_eq!(value_of(&settings, "AZURE_QUEUE_NAME"), Some("landing-events"));
    assert_eq!(value_of(&settings_of(&[]), "LakeQueue__queueServiceUri"), None, "to be set");
    let settings = settings_of(&[("AZURE_CLIENT_SECRET", "sesame"), ("AZURE_TENANT_ID", "t-1")]);
    assert_eq!(value_of(&settings, "AZURE_TENANT_ID"), Some("t-1"));
    assert_eq!(value_of(&settings, "AZURE_CLIENT_SECRET"), None, "a secret is never shown");
}

#[test]
fn settings_for_this_machine_lead_to_azurite() {
    let bench = Bench::new();
    bench.package().unwrap();
    let text = fs::read_to_string(bench.path("app/local.settings.json")).unwrap();
    insta::assert_snapshot!(text);
}
