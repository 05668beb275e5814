/* SPDX-License-Identifier: Apache-2.0 */

/* Reports of SYN packets. The input is read as what recv() returned, and as one packet. Every
 * packet that is built from an accepted one must be well formed; a SYN that is sent again must
 * read the same. */

#include "egress/packet.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void try_packet(const uint8_t *packet, size_t len)
{
    struct packet_syn syn, again;
    uint8_t out[PACKET_SMALL];
    if (packet_parse_syn(&syn, packet, len) < 0)
        return;
    check(address_is_v4(&syn.ends.source) == address_is_v4(&syn.ends.destination));
    check(syn.len <= PACKET_SYN && syn.len <= len);
    check(packet_parse_syn(&again, syn.bytes, syn.len) == 0);
    check(packet_ends_equal(&again.ends, &syn.ends) && again.sequence == syn.sequence &&
          again.len == syn.len && memcmp(again.bytes, syn.bytes, syn.len) == 0);
    check(packet_build_reset(out, &syn) <= PACKET_SMALL);
    check(packet_parse_syn(&again, out, packet_build_reset(out, &syn)) < 0);
    for (enum packet_unreachable why = 0; why <= PACKET_PORT_UNREACHABLE; why++) {
        check(packet_build_unreachable_syn(out, &syn, why) <= PACKET_SMALL);
        check(packet_build_unreachable_udp(out, &syn.ends, len, why) <= PACKET_SMALL);
    }
    uint8_t head[PACKET_UDP_HEAD];
    check(packet_build_udp_head(head, &syn.ends, packet, len) <= PACKET_UDP_HEAD);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data;
    const uint8_t *packet;
    size_t left = size;
    size_t len;
    while (packet_next_report(&at, &left, &packet, &len)) {
        check(packet >= data && packet + len <= data + size);
        try_packet(packet, len);
    }
    try_packet(data, size);
    return 0;
}
