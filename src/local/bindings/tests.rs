use super::*;
use crate::config::Config;
use crate::http::Function;

const HOST: &str = r#"{"version": "2.0", "functionTimeout": "00:05:00",
  "customHandler": {"enableForwardingHttpRequest": true},
  "extensions": {"queues": {"batchSize": 8, "newBatchThreshold": 4, "visibilityTimeout": "00:00:30", "messageEncoding": "none"}}}"#;

const QUEUE: &str = r#"{"bindings": [{"type": "queueTrigger", "direction": "in", "name": "msg",
  "queueName": "%AZURE_QUEUE_NAME%-poison", "connection": "LakeQueue"}]}"#;

const STREAM: &str = r#"{"bindings": [{"type": "kafkaTrigger", "direction": "in", "name": "events",
  "brokerList": "%CDC_BROKERS%", "topic": "%CDC_TOPIC%", "cardinality": "many", "dataType": "binary"}],
  "retry": {"strategy": "exponentialBackoff", "maxRetryCount": -1, "minimumInterval": "00:00:01", "maximumInterval": "00:05:00"}}"#;

fn root(host: &str, functions: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("host.json"), host).unwrap();
    std::fs::create_dir(root.path().join("functions")).unwrap();
    for (name, text) in functions {
        let folder = root.path().join("functions").join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("function.json"), text).unwrap();
    }
    root
}

fn read_with(host: &str, functions: &[(&str, &str)]) -> Result<(Vec<FunctionBinding>, HostSettings)> {
    let config = Config::from_pairs([("AZURE_QUEUE_NAME", "incoming")]).unwrap();
    read(root(host, functions).path(), &|name| config.lookup(name))
}

#[test]
fn the_shipped_functions_are_those_of_the_handler() {
    let config = Config::from_pairs::<&str, &str>([]).unwrap();
    let (functions, settings) = read(Path::new(env!("CARGO_MANIFEST_DIR")), &|name| config.lookup(name)).unwrap();
    let mut names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    let mut routes = Function::ALL.map(Function::name);
    names.sort_unstable();
    routes.sort_unstable();
    assert_eq!(names, routes);
    assert_eq!(settings.max_dequeue_count, 5);
    assert_eq!(settings.visibility_timeout, Duration::from_secs(30));
    for function in &functions {
        match (function.name.as_str(), &function.trigger) {
            ("ingest", Trigger::Queue { queue, binary: false, .. }) => assert_eq!(queue, "landing-events"),
            ("poison", Trigger::Queue { queue, binary: false, .. }) => assert_eq!(queue, "landing-events-poison"),
            ("cdc_kafka" | "cdc_eventhubs", Trigger::Stream { .. }) => {}
            (_, Trigger::Timer { .. }) => {}
            ("status", Trigger::Http { methods, route }) => {
                assert_eq!((methods.as_slice(), route.as_str()), (["GET".to_owned()].as_slice(), "status"));
            }
            ("backfill_now", Trigger::Http { methods, route }) => {
                assert_eq!((methods.as_slice(), route.as_str()), (["POST".to_owned()].as_slice(), "backfill_now"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn names_are_resolved_and_settings_have_the_hosts_defaults() {
    let (functions, settings) = read_with(HOST, &[("poison", QUEUE)]).unwrap();
    assert!(matches!(&functions[0].trigger, Trigger::Queue { queue, .. } if queue == "incoming-poison"));
    assert_eq!(settings.max_dequeue_count, 5);
    assert_eq!(settings.max_polling_interval, Duration::from_secs(60));
    assert_eq!(settings.function_timeout, Some(Duration::from_secs(300)));
    assert_eq!(settings.route_prefix, "api");
}

#[test]
fn a_laid_out_script_root_is_read_too() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("host.json"), HOST).unwrap();
    std::fs::create_dir(root.path().join("ingest")).unwrap();
    std::fs::write(root.path().join("ingest/function.json"), QUEUE).unwrap();
    let (functions, _) = read(root.path(), &|_| Some("queue".to_owned())).unwrap();
    assert_eq!(functions[0].name, "ingest");
}

#[test]
fn disabled_functions_and_folders_without_function_json_are_left_out() {
    let disabled = QUEUE.replacen('{', "{\"disabled\": true, ", 1);
    let (functions, _) = read_with(HOST, &[("off", &disabled), ("on", QUEUE)]).unwrap();
    assert_eq!(functions.len(), 1);
    assert_eq!(functions[0].name, "on");
}

#[test]
fn streams_are_read_and_tell_what_is_not_set() {
    let hub = STREAM.replace("kafkaTrigger", "eventHubTrigger");
    let (functions, _) = read_with(HOST, &[("hub", &hub), ("kafka", STREAM)]).unwrap();
    let [hub, kafka] = functions.as_slice() else { panic!("{functions:?}") };
    let (Trigger::Stream(hub), Trigger::Stream(kafka)) = (&hub.trigger, &kafka.trigger) else { panic!("{hub:?}") };
    assert_eq!((hub.source, kafka.source), (StreamSource::EventHubs, StreamSource::Kafka));
    assert_eq!((kafka.name.as_str(), kafka.unset.join(" ")), ("events", "CDC_BROKERS CDC_TOPIC".to_owned()));
    assert_eq!(kafka.not_run().unwrap(), "CDC_BROKERS, CDC_TOPIC not set");
    assert_eq!((kafka.setting("brokerList"), kafka.setting("cardinality")), (None, Some("many")));
    let set = root(HOST, &[("kafka", STREAM)]);
    let (functions, _) = read(set.path(), &|_| Some("secret".to_owned())).unwrap();
    let Trigger::Stream(kafka) = &functions[0].trigger else { panic!("{functions:?}") };
    assert_eq!((kafka.unset.len(), kafka.setting("brokerList")), (0, Some("secret")));
    assert_eq!(kafka.not_run().is_none(), cfg!(feature = "kafka"));
    assert!(!format!("{functions:?}").contains("\"secret\""), "{functions:?}");
}

#[test]
fn values_take_the_place_of_names_and_are_not_read_again() {
    let resolve = |name: &str| Some(if name == "A" { "%B%".to_owned() } else { "b".to_owned() });
    for (template, expected) in [("", ""), ("x", "x"), ("%A%-%B%", "%B%-b"), ("%B%%B%", "bb")] {
        assert_eq!(resolved(template, &resolve).unwrap(), expected, "{template}");
    }
    assert!(resolved("%A", &resolve).is_err() && resolved("a%b%c%", &resolve).is_err());
    assert_eq!(names("%A%-x-%B_C%").unwrap(), ["A", "B_C"]);
}

#[test]
fn spans_of_time_are_those_of_dotnet() {
    for (text, seconds) in [("00:00:30", 30.0), ("01:02:03", 3723.0), ("1.00:00:00", 86400.0), ("00:00:00.5", 0.5)] {
        assert_eq!(time_span(text), Some(Duration::from_secs_f64(seconds)), "{text}");
    }
    for text in ["", "30", "00:30", "24:00:00", "00:60:00", "00:00:60", "-00:00:01", "a:b:c", "00:00:00:00"] {
        assert_eq!(time_span(text), None, "{text}");
    }
}

#[test]
fn what_the_host_would_refuse_is_refused_with_the_file() {
    let timer = |schedule: &str| {
        format!(r#"{{"bindings": [{{"type": "timerTrigger", "name": "timer", "schedule": "{schedule}"}}]}}"#)
    };
    let cases: &[(&str, &str, String, &str)] = &[
        ("{}", "f", QUEUE.to_owned(), "host.json: `version` must be \"2.0\""),
        ("{\"version\":", "f", QUEUE.to_owned(), "host.json"),
        (&HOST.replace("none", "base64"), "f", QUEUE.to_owned(), "host.json: extensions.queues.messageEncoding must be \"none\""),
        (&HOST.replace("8", "33"), "f", QUEUE.to_owned(), "batchSize is 33, expected 1 to 32"),
        (&HOST.replace("00:00:30", "30 s"), "f", QUEUE.to_owned(), "visibilityTimeout is `30 s`"),
        (HOST, "f", "{\"bindings\": []}".to_owned(), "function.json: 0 triggers, expected exactly one"),
        (HOST, "f", QUEUE.replace("AZURE_QUEUE_NAME", "NOWHERE"), "NOWHERE is not set"),
        (HOST, "f", QUEUE.replace("%AZURE", "AZURE"), "has a single %"),
        (HOST, "f", QUEUE.replace("queueTrigger", "cosmosDBTrigger"), "no trigger of type `cosmosDBTrigger`"),
        (HOST, "f", STREAM.replace("many", "one"), "must have `cardinality` many and `dataType` binary"),
        (HOST, "f", STREAM.replace("binary", "string"), "must have `cardinality` many and `dataType` binary"),
        (HOST, "f", STREAM.replace("-1", "5"), "must have a `retry` with `maxRetryCount` -1"),
        (HOST, "f", STREAM.replace("%CDC_TOPIC%", "100%"), "`100%` has a single %"),
        (HOST, "f", QUEUE.replace("queueName", "queue"), "the trigger has no `queueName`"),
        (HOST, "f", timer("* * * * *"), "5 fields, expected 6"),
        (HOST, "f", "[".to_owned(), "function.json"),
        (HOST, "1st", QUEUE.to_owned(), "`1st` cannot be a function's name"),
        (HOST, "host", QUEUE.to_owned(), "`host` cannot be a function's name"),
        (
            &HOST.replace("true", "false"),
            "f",
            r#"{"bindings": [{"type": "httpTrigger", "name": "req"}, {"type": "http", "direction": "out", "name": "res"}]}"#.to_owned(),
            "an HTTP function that is not forwarded",
        ),
    ];
    for (host, name, function, expected) in cases {
        let error = read_with(host, &[(name, function)]).unwrap_err();
        assert!(error.to_string().contains(expected), "expected `{expected}` in: {error}");
    }
}

#[test]
fn a_missing_root_says_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let error = read(empty.path(), &|_| None).unwrap_err();
    assert!(error.to_string().ends_with("host.json: not found"), "{error}");
    assert!(error.remedy_text().unwrap().contains("ALLUVIUM_ROOT"));
    let error = read_with(HOST, &[]).unwrap_err();
    assert!(error.to_string().contains("no function found"), "{error}");
}
