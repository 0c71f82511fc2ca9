use super::identity::Kind;
use super::*;
use crate::clock::{ManualClock, SystemClock};

const KEY: &str = "c2VzYW1lLW9wZW4teW91cnNlbGY=";

fn open(change: impl FnOnce(&mut AccountSettings)) -> Result<Account> {
    let mut settings = AccountSettings::default();
    change(&mut settings);
    Account::open(&settings, Arc::new(SystemClock))
}

fn connect(text: &str) -> Result<Account> {
    open(|settings| settings.connection = Some(Secret::new(text)))
}

#[test]
fn connection_strings_say_account_endpoints_and_right() {
    let azurite = "BlobEndpoint=http://127.0.0.1:9/dev;QueueEndpoint=http://127.0.0.1:8/dev";
    for (text, name, blobs, queues, access) in [
        (
            "UseDevelopmentStorage=true",
            "devstoreaccount1",
            "http://127.0.0.1:10000/devstoreaccount1",
            "http://127.0.0.1:10001/devstoreaccount1",
            "account key",
        ),
        (
            "usedevelopmentstorage=TRUE; DevelopmentStorageProxyUri=http://azurite/;",
            "devstoreaccount1",
            "http://azurite:10000/devstoreaccount1",
            "http://azurite:10001/devstoreaccount1",
            "account key",
        ),
        (
            &format!(
                "DefaultEndpointsProtocol=https;AccountName=lake;AccountKey={KEY};EndpointSuffix=core.windows.net"
            ),
            "lake",
            "https://lake.blob.core.windows.net/",
            "https://lake.queue.core.windows.net/",
            "account key",
        ),
        (
            &format!("AccountName=dev;AccountKey={KEY};{azurite}"),
            "dev",
            "http://127.0.0.1:9/dev",
            "http://127.0.0.1:8/dev",
            "account key",
        ),
        (
            "BlobEndpoint=https://lake.blob.core.chinacloudapi.cn/;QueueEndpoint=https://lake.queue.core.chinacloudapi.cn/;\
             SharedAccessSignature=sv=2024-01-01&sig=a%2Bb%3D",
            "lake",
            "https://lake.blob.core.chinacloudapi.cn/",
            "https://lake.queue.core.chinacloudapi.cn/",
            "shared access signature",
        ),
        (
            "BlobEndpoint=http://127.0.0.1:9/dev;QueueEndpoint=http://127.0.0.1:8/dev;SharedAccessSignature=sv=2024-01-01&sig=a",
            "dev",
            "http://127.0.0.1:9/dev",
            "http://127.0.0.1:8/dev",
            "shared access signature",
        ),
        (
            "BlobEndpoint=http://azurite:9/dev/;QueueEndpoint=http://azurite:8/dev/;SharedAccessSignature=sv=2024-01-01&sig=a",
            "dev",
            "http://azurite:9/dev/",
            "http://azurite:8/dev/",
            "shared access signature",
        ),
    ] {
        let account = connect(text).unwrap();
        assert_eq!(account.name(), name, "{text}");
        assert_eq!((account.blob_endpoint().as_str(), account.queue_endpoint().as_str()), (blobs, queues), "{text}");
        assert_eq!(account.access_name(), access, "{text}");
        account.container("landing").unwrap();
    }
}

#[test]
fn what_is_wrong_is_told_without_the_secret() {
    for (text, why) in [
        (KEY.to_owned(), "it has neither AccountName nor BlobEndpoint"),
        ("sesame".to_owned(), "a part of it has no `=`"),
        (format!("AccountKey={KEY}"), "it has neither AccountName nor BlobEndpoint"),
        ("AccountName=lake".to_owned(), "it has neither AccountKey nor SharedAccessSignature"),
        (format!("AccountName=lake;AccountKey={KEY};BlobEndpoint=nowhere"), "BlobEndpoint is no URL"),
        (
            format!("AccountName=lake;AccountKey={KEY};QueueEndpoint=https://me:sesame@host/"),
            "QueueEndpoint has a name or password before the host",
        ),
        (
            "BlobEndpoint=http://[::1]:9;QueueEndpoint=http://[::1]:8;SharedAccessSignature=sig=sesame".to_owned(),
            "neither AccountName nor BlobEndpoint names an account",
        ),
    ] {
        let error = connect(&text).unwrap_err();
        let said = format!("{} {error:?}", error.describe());
        assert!(said.contains(why), "{said}");
        assert!(
            said.contains("AZURE_STORAGE_CONNECTION_STRING") && !said.contains(KEY) && !said.contains("sesame"),
            "{said}"
        );
    }
    let account = connect("AccountName=lake;AccountKey=s%same!").unwrap();
    let error = account.container("landing").unwrap_err();
    assert!(!format!("{error:?}").contains("s%same"), "{error:?}");
    assert!(!format!("{account:?}").contains("same"), "{account:?}");
}

#[test]
fn the_account_is_named_by_one_of_three() {
    let text = format!("AccountName=host;AccountKey={KEY}");
    let own = Some(Secret::new(text.replace("host", "own")));
    let host = Some(Secret::new(text));
    let pick = |connection: &Option<Secret>, account: Option<&str>, host_connection: &Option<Secret>| {
        open(|settings| {
            settings.connection.clone_from(connection);
            settings.account = account.map(str::to_owned);
            settings.host_connection.clone_from(host_connection);
        })
        .map(|account| format!("{} by {}", account.name(), account.access_name()))
    };
    assert_eq!(pick(&own, None, &host).unwrap(), "own by account key");
    assert_eq!(pick(&own, Some("own"), &host).unwrap(), "own by account key");
    assert_eq!(pick(&None, None, &host).unwrap(), "host by account key");
    // The host's storage is not the lake's when another account is named.
    assert_eq!(pick(&None, Some("lake"), &host).unwrap(), "lake by identity");
    let error = pick(&own, Some("other"), &None).unwrap_err();
    assert!(error.to_string().contains("`own`") && error.to_string().contains("`other`"), "{error}");
    let error = pick(&None, None, &None).unwrap_err();
    assert!(error.describe().contains("AZURE_STORAGE_ACCOUNT"), "{error}");
}

#[test]
fn the_identity_is_the_one_whose_settings_are_there() {
    let secret = || Some(Secret::new("sesame"));
    for (login, kind) in [
        (Login::default(), Kind::AzureCli),
        (Login { has_identity_endpoint: true, client_id: Some("c".to_owned()), ..Login::default() }, Kind::Managed),
        (Login { client_secret: secret(), has_identity_endpoint: true, ..Login::default() }, Kind::ClientSecret),
        (
            Login { federated_token_file: Some("/token".into()), client_secret: secret(), ..Login::default() },
            Kind::Workload,
        ),
        (Login { kind: Some(Kind::Managed), client_secret: secret(), ..Login::default() }, Kind::Managed),
    ] {
        assert_eq!(login.kind(), kind, "{login:?}");
    }
    let error = Login { client_secret: secret(), ..Login::default() }.credential().unwrap_err();
    assert!(error.to_string().starts_with("AZURE_TENANT_ID is not set"), "{error}");
}

#[test]
fn signatures_are_made_for_a_while() {
    let now = "2026-01-15T10:00:00Z".parse().unwrap();
    let clock = ManualClock::new(now, 1);
    let pairs = sas::sign("lake", &Secret::new(KEY), clock.now()).unwrap();
    let value = |name: &str| pairs.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    assert_eq!((value("st"), value("se")), (Some("2026-01-15T09:45:00Z"), Some("2026-01-15T10:15:00Z")));
    assert_eq!(value("sig").map(str::len), Some(44), "32 bytes in base64");
    assert_ne!(pairs, sas::sign("lakf", &Secret::new(KEY), clock.now()).unwrap());
    let given = Secret::new("?sv=2024-01-01&sig=a%2Bb%3D");
    assert_eq!(sas::pairs(&given)[1], ("sig".to_owned(), "a+b=".to_owned()));
}
