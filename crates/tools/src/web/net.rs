//! IP networks in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP network, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    base: IpAddr,
    prefix: u8,
}

impl Net {
    pub(super) const fn v4(base: Ipv4Addr, prefix: u8) -> Self {
        Self { base: IpAddr::V4(base), prefix }
    }

    pub(super) const fn v6(base: Ipv6Addr, prefix: u8) -> Self {
        Self { base: IpAddr::V6(base), prefix }
    }

    /// Whether the network contains the address. False for addresses of the other family.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let differ = base.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let differ = base.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for Net {
    type Err = String;

    /// Parses `ADDRESS/BITS`, or a single address. Refuses `/0`, the network of all addresses.
    fn from_str(text: &str) -> Result<Self, String> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| format!("{base:?} is no IP address"))?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match bits {
            None => most,
            Some(bits) => match bits.parse() {
                Ok(prefix) if (1..=most).contains(&prefix) => prefix,
                _ => return Err(format!("{bits:?} is no number of bits from 1 to {most}")),
            },
        };
        Ok(Self { base, prefix })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_network_holds_the_addresses_that_share_its_leading_bits() {
        for (net, address, inside) in [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("100.64.0.0/10", "100.127.255.255", true),
            ("100.64.0.0/10", "100.128.0.0", false),
            ("fc00::/7", "fdff::1", true),
            ("fc00::/7", "fe00::1", false),
            ("::1", "::1", true),
            ("::1/128", "127.0.0.1", false),
        ] {
            assert_eq!(net.parse::<Net>().unwrap().contains(address.parse().unwrap()), inside, "{net} {address}");
        }
    }

    #[test]
    fn an_invalid_network_is_refused_with_the_reason() {
        for text in ["", "10.0.0.0/33", "10.0.0.0/0", "::/0", "::/129", "10.0.0/8", "intranet/8", "10.0.0.0/", "1/8"] {
            assert!(text.parse::<Net>().unwrap_err().contains("is no "), "{text}");
        }
    }
}
