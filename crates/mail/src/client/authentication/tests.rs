use super::*;

fn check(results: &[&str], domain: &str, expected: bool) {
    let values: Vec<String> = results.iter().map(|value| (*value).to_owned()).collect();
    assert_eq!(confirm(&values, "mx.example.org", domain).is_ok(), expected, "{results:?} {domain}");
}

#[test]
fn the_own_servers_topmost_result_decides() {
    let gmail = "mx.example.org;\r\n       dkim=pass header.i=@gmail.com header.s=20230601 header.b=aB1;\r\n       spf=pass \
                 (mx.example.org: domain of ann@gmail.com designates 209.85.220.41 as permitted sender) \
                 smtp.mailfrom=ann@gmail.com;\r\n       dmarc=pass (p=NONE sp=QUARANTINE dis=NONE) header.from=gmail.com";
    check(&[gmail], "gmail.com", true);
    check(&[gmail], "example.com", false);
    let spaced = "mx.example.org 1; spf = pass smtp.mailfrom = bob@contoso.example; dkim=none; dmarc = none";
    check(&[spaced], "contoso.example", true);
    check(&["MX.example.org; dkim=pass reason=\"good; dkim=fail\" header.d=example.com"], "example.com", true);
    check(
        &["mx.example.org; dkim=fail header.d=example.com; spf=softfail smtp.mailfrom=a@example.com"],
        "example.com",
        false,
    );
    check(&["mx.example.org; none"], "example.com", false);
    check(&[], "example.com", false);
}

#[test]
fn a_result_of_dmarc_decides_alone_unless_it_is_none() {
    let others = "dkim=pass header.d=example.com; spf=pass smtp.mailfrom=a@example.com";
    for (dmarc, expected) in [
        ("dmarc=pass header.from=example.com", true),
        ("DMARC/1=Pass header.from=Example.com", true),
        ("dmarc=none header.from=example.com", true),
        ("dmarc=fail header.from=example.com", false),
        ("dmarc=fail", false),
        ("dmarc=temperror header.from=example.com", false),
        ("dmarc=bestguesspass header.from=example.com", false),
        ("dmarc=pass", false),
        ("dmarc=pass header.from=example.org", false),
        ("dmarc=pass header.from=example.com; dmarc=fail header.from=example.com", false),
    ] {
        check(&[&format!("mx.example.org; {others}; {dmarc}")], "example.com", expected);
        check(&[&format!("mx.example.org; {dmarc}; {others}")], "example.com", expected);
    }
    check(&["mx.example.org; dmarc=none header.from=example.com"], "example.com", false);
}

#[test]
fn a_forged_result_counts_for_nothing() {
    let good = "mx.example.org; dmarc=pass header.from=example.com";
    check(&["mx.evil.example; dmarc=pass header.from=example.com"], "example.com", false);
    check(&["mx.example.org; dmarc=fail header.from=example.com", good], "example.com", false);
    check(&["mx.evil.example; dmarc=fail", good], "example.com", true);
    for forged in [
        "mx.example.org.evil.example; dmarc=pass header.from=example.com",
        "(mx.example.org); dmarc=pass header.from=example.com",
        "mx.evil.example (; mx.example.org); dmarc=pass header.from=example.com",
        "mx.example.org; dmarc=fail (dmarc=pass header.from=example.com)",
        "mx.example.org; spf=fail smtp.mailfrom=\"x; dmarc=pass header.from=example.com\"",
        "mx.example.org; spf=fail smtp.mailfrom=\"x\\\"; dkim=pass header.d=example.com\"",
        "mx.example.org; dmarc=pass header.from=evil.example",
        "mx.example.org; x-dmarc=pass header.from=example.com",
        "mx.example.org; arc=pass header.from=example.com",
        "mx.example.org; spf=pass smtp.helo=example.com",
    ] {
        check(&[forged], "example.com", false);
    }
}

#[test]
fn a_domain_above_stands_for_one_below_and_not_the_reverse() {
    let dkim = |domain: &str| format!("mx.example.org; dkim=pass header.d={domain}");
    for (confirmed, domain, expected) in [
        ("example.com", "mail.example.com", true),
        ("mail.example.com", "example.com", false),
        ("com", "example.com", false),
        ("ample.com", "example.com", false),
        ("EXAMPLE.com.", "example.com", true),
    ] {
        check(&[&dkim(confirmed)], domain, expected);
    }
}
