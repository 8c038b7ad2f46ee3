use std::fs;

use super::*;

fn render(source: &str, messages: &[Message]) -> Result<String, TextError> {
    ChatTemplate::new("here", source, Some("<s>"), None)?.render(messages, true)
}

fn hi() -> [Message; 1] {
    [Message::new("user", "hi")]
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap();
}

#[test]
fn errors_carry_the_place_and_the_templates_own_words() {
    let error = render("a\n{{ raise_exception('roles must alternate') }}", &hi()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("chat template here: "), "{text}");
    assert!(text.contains("roles must alternate (line 2)"), "{text}");

    let error = render("{% for %}", &hi()).unwrap_err().to_string();
    assert!(error.contains("syntax error"), "{error}");

    let error = render("{{ strftime_now('%Y') }}", &hi()).unwrap_err();
    assert!(error.to_string().contains("today's date (strftime_now)"));

    let error = render("{{ nothing_here() }}", &hi()).unwrap_err();
    assert!(error.to_string().contains("nothing_here"));
}

#[test]
fn a_missing_token_and_missing_tools_are_as_in_python() {
    let source = "{{ bos_token }}|{{ eos_token }}|{{ tools is none }}|{{ messages[0].tool_calls is defined }}";
    assert_eq!(render(source, &hi()).unwrap(), "<s>||True|False");
}

#[test]
fn json_as_python_writes_it() {
    let source = "{{ {'a': [1, 2.5, none], 'b': '<é>'} | tojson }}";
    assert_eq!(
        render(source, &hi()).unwrap(),
        r#"{"a": [1, 2.5, null], "b": "<é>"}"#
    );
    let source = "{{ {'a': [1]} | tojson(indent=2) }}";
    assert_eq!(
        render(source, &hi()).unwrap(),
        "{\n  \"a\": [\n    1\n  ]\n}"
    );
    assert!(render("{{ 1 | tojson(colour=2) }}", &hi()).is_err());
}

#[test]
fn a_directory_without_a_template() {
    let dir = tempfile::tempdir().unwrap();
    assert!(ChatTemplate::from_dir(dir.path()).unwrap().is_none());
    write(
        dir.path(),
        "tokenizer_config.json",
        r#"{"chat_template": null}"#,
    );
    assert!(ChatTemplate::from_dir(dir.path()).unwrap().is_none());
}

#[test]
fn the_forms_of_tokenizer_config() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = |config: &str| {
        write(dir.path(), "tokenizer_config.json", config);
        ChatTemplate::from_dir(dir.path()).map(Option::unwrap)
    };
    let one = loaded(r#"{"chat_template": "{{ bos_token }}1", "bos_token": {"content": "<s>"}}"#);
    let one = one.unwrap();
    assert_eq!(one.render(&hi(), false).unwrap(), "<s>1");
    assert!(
        one.name()
            .ends_with("tokenizer_config.json (chat_template)")
    );

    let list = r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
    assert_eq!(loaded(list).unwrap().render(&hi(), false).unwrap(), "d");

    for (config, words) in [
        (
            r#"{"chat_template": [{"name": "rag", "template": "t"}]}"#,
            "named \"default\"",
        ),
        (r#"{"chat_template": 3}"#, "chat_template 3: must be"),
        (
            r#"{"chat_template": "", "eos_token": 2}"#,
            "eos_token 2: must be",
        ),
        ("[]", "must be an object"),
        ("{", "EOF"),
    ] {
        let error = loaded(config).unwrap_err().to_string();
        assert!(error.contains("tokenizer_config.json"), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_template_file_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "tokenizer_config.json",
        r#"{"chat_template": "config", "eos_token": "</s>"}"#,
    );
    write(dir.path(), "chat_template.jinja", "file{{ eos_token }}");
    let template = ChatTemplate::from_dir(dir.path()).unwrap().unwrap();
    assert_eq!(template.render(&hi(), false).unwrap(), "file</s>");
    assert!(template.name().ends_with("chat_template.jinja"));
    assert_eq!(template.source(), "file{{ eos_token }}");
    assert_eq!((template.bos(), template.eos()), (None, Some("</s>")));
}

#[test]
fn a_template_without_end_is_an_error() {
    let forever = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    let error = render(forever, &hi()).unwrap_err().to_string();
    assert!(
        error.contains("does not end within 1000000 steps"),
        "{error}"
    );

    let flood = format!(
        "{{% for i in range(99999) %}}{}{{% endfor %}}",
        "x".repeat(10_000)
    );
    let error = render(&flood, &hi()).unwrap_err().to_string();
    assert!(error.contains("writes more than 67108864 bytes"), "{error}");
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    for (before, again, behind) in [
        ("{{ ", "not ", "1 }}"),
        ("{{ ", "- ", "1 }}"),
        ("{{ 1", "+1", " }}"),
        ("{{ 'x'", "|upper", " }}"),
        ("{{ messages", ".a", " }}"),
    ] {
        let times = MAX_SOURCE / again.len() - 8;
        // Whether it can be rendered is the template's affair.
        let _ = render(&format!("{before}{}{behind}", again.repeat(times)), &hi());
    }
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(9) %}{% for j in range(99999) %}\
                  {% set ns.x = [ns.x] %}{% endfor %}{% endfor %}";
    let error = render(nested, &hi()).unwrap_err().to_string();
    assert!(error.contains("does not end"), "{error}");
    for use_of_it in ["{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x == [ns.x] }}"] {
        let _ = render(
            &format!("{}{use_of_it}", nested.replacen("(9)", "(1)", 1)),
            &hi(),
        );
    }
    let long = "x".repeat(MAX_SOURCE + 1);
    let error = render(&long, &hi()).unwrap_err().to_string();
    assert!(error.contains("at most 131072 are accepted"), "{error}");
}
