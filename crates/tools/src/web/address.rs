//! Distinguishes public IP addresses from others. Pure.
//!
//! An address is public if the IANA registries call it globally reachable. For an address with an embedded IPv4
//! address, that IPv4 address decides if the kernel or a gateway would connect to it; tunnel addresses are refused.
//!
//! **Sources**: the IANA registries of special-purpose addresses (RFC 6890 and its successors,
//! <https://www.iana.org/assignments/iana-ipv4-special-registry>, `iana-ipv6-special-registry`), RFC 4291 for IPv6, RFC
//! 6052 and 8215 for NAT64, RFC 3056 for 6to4, RFC 4380 for Teredo.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::net::Net;

/// Why an address is refused, as a noun phrase: `a loopback address: this machine itself`.
pub(super) type Reason = &'static str;

const fn four(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Net {
    Net::v4(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn six(a: u16, b: u16, c: u16, prefix: u8) -> Net {
    Net::v6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

const PRIVATE: Reason = "a private address: this machine's own network";
const DOCUMENTATION: Reason = "an address for documentation only";
const TUNNEL: Reason = "a tunnel address that leads to another one";

/// All IPv4 networks that are not public.
const SPECIAL_V4: &[(Net, Reason)] = &[
    (four(0, 0, 0, 0, 8), "an unspecified address: this machine itself"),
    (four(10, 0, 0, 0, 8), PRIVATE),
    (four(100, 64, 0, 0, 10), "an address of a provider's inner network"),
    (four(127, 0, 0, 0, 8), "a loopback address: this machine itself"),
    (four(168, 63, 129, 16, 32), "the address of a cloud's own services"), // Azure: looks public, but the host answers
    (four(169, 254, 0, 0, 16), "a link-local address, where clouds keep their secrets"),
    (four(172, 16, 0, 0, 12), PRIVATE),
    (four(192, 0, 0, 0, 24), "an address reserved for protocols"),
    (four(192, 0, 2, 0, 24), DOCUMENTATION),
    (four(192, 31, 196, 0, 24), "an address reserved for protocols"),
    (four(192, 52, 193, 0, 24), "an address reserved for protocols"),
    (four(192, 88, 99, 0, 24), TUNNEL),
    (four(192, 168, 0, 0, 16), PRIVATE),
    (four(192, 175, 48, 0, 24), "an address reserved for protocols"),
    (four(198, 18, 0, 0, 15), "an address for measurements only"),
    (four(198, 51, 100, 0, 24), DOCUMENTATION),
    (four(203, 0, 113, 0, 24), DOCUMENTATION),
    (four(224, 0, 0, 0, 4), "a multicast address"),
    (four(240, 0, 0, 0, 4), "a reserved address"),
];

/// IPv6 networks that are not public; narrow networks come first.
const SPECIAL_V6: &[(Net, Reason)] = &[
    (Net::v6(Ipv6Addr::UNSPECIFIED, 128), "an unspecified address: this machine itself"),
    (Net::v6(Ipv6Addr::LOCALHOST, 128), "a loopback address: this machine itself"),
    (Net::v6(Ipv6Addr::UNSPECIFIED, 96), TUNNEL), // IPv4-compatible, RFC 4291 2.5.5.1
    (six(0x64, 0xff9b, 1, 48), TUNNEL),           // NAT64, local use, RFC 8215
    (six(0x100, 0, 0, 64), "an address that discards everything"),
    (six(0x2001, 0, 0, 32), TUNNEL),                              // Teredo
    (six(0x2001, 0, 0, 23), "an address reserved for protocols"), // ORCHID, benchmarking and others
    (six(0x2001, 0xdb8, 0, 32), DOCUMENTATION),
    (six(0x2002, 0, 0, 16), TUNNEL), // 6to4
    (six(0x3fff, 0, 0, 20), DOCUMENTATION),
    (six(0xfc00, 0, 0, 7), PRIVATE),
    (six(0xfe80, 0, 0, 10), "a link-local address"),
    (six(0xfec0, 0, 0, 10), PRIVATE), // site-local; deprecated, but some networks route it
    (six(0xff00, 0, 0, 8), "a multicast address"),
];

/// The range of global unicast addresses in the registries. Everything else is refused, including addresses that may be
/// assigned later.
const GLOBAL_V6: Net = six(0x2000, 0, 0, 3);

/// The well-known prefix of NAT64. The last 32 bits are the IPv4 address of the connection.
const NAT64: Net = six(0x64, 0xff9b, 0, 96);

/// Checks that an address is public.
pub(super) fn check(address: IpAddr) -> Result<(), Reason> {
    let address = effective(address);
    let special = match address {
        IpAddr::V4(_) => SPECIAL_V4,
        IpAddr::V6(_) => SPECIAL_V6,
    };
    match special.iter().find(|(net, _)| net.contains(address)) {
        Some((_, why)) => Err(why),
        None if address.is_ipv6() && !GLOBAL_V6.contains(address) => Err("a reserved address"),
        None => Ok(()),
    }
}

/// The address at which a connection would end: for an IPv4-mapped or NAT64 address, the embedded IPv4 address.
pub(super) fn effective(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if NAT64.contains(address) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        canonical => canonical,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_ends_of_every_special_range_are_refused_and_their_neighbours_are_not() {
        for (first, last, before, after) in [
            ("0.0.0.0", "0.255.255.255", "", "1.0.0.0"),
            ("10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"),
            ("100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"),
            ("127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"),
            ("168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17"),
            ("169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"),
            ("172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"),
            ("192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"),
            ("192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"),
            ("192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0"),
            ("192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"),
            ("198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"),
            ("198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0"),
            ("203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0"),
            ("224.0.0.0", "255.255.255.255", "223.255.255.255", ""),
            ("2001::", "2001:1ff:ffff::", "", "2001:200::"),
            ("2001:db8::", "2001:db8:ffff::", "2001:db7:ffff::", "2001:db9::"),
            ("2002::", "2002:ffff::", "2001:ffff::", "2003::"),
            ("3fff::", "3fff:fff::", "3ffe:ffff::", "3fff:1000::"),
        ] {
            for refused in [first, last] {
                assert!(check(refused.parse().unwrap()).is_err(), "{refused}");
            }
            for public in [before, after].into_iter().filter(|address| !address.is_empty()) {
                assert_eq!(check(public.parse().unwrap()), Ok(()), "{public}");
            }
        }
    }

    #[test]
    fn addresses_that_lead_inside_are_refused_in_every_dress() {
        for (address, why) in [
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("::ffff:169.254.169.254", "link-local"),
            ("::127.0.0.1", "tunnel"),
            ("::8.8.8.8", "tunnel"),
            ("64:ff9b::127.0.0.1", "loopback"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b:1::8.8.8.8", "tunnel"),
            ("100::1", "discards"),
            ("2001::1", "tunnel"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "tunnel"),
            ("2001:10::1", "protocols"),
            ("2002:7f00:1::", "tunnel"),
            ("2002:a9fe:a9fe::1", "tunnel"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "private"),
            ("feff::1", "private"),
            ("ff02::1", "multicast"),
            ("100.100.100.200", "provider"),
            ("::ffff:0:127.0.0.1", "reserved"),
        ] {
            let refusal = check(address.parse().unwrap()).unwrap_err();
            assert!(refusal.contains(why), "{address}: {refusal}");
        }
    }

    #[test]
    fn public_addresses_pass_in_every_dress() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.215.14",
            "2606:4700:4700::1111",
            "2a00:1450:4001:800::200e",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert_eq!(check(address.parse().unwrap()), Ok(()), "{address}");
        }
    }
}
