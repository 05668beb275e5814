/* SPDX-License-Identifier: Apache-2.0 */

/* The addresses, routes and rules of a kit, as netlink messages. The rules, as nft prints them:
 *
 *  table inet hermes {
 *    chain pre { type filter hook prerouting priority mangle; policy drop;
 *      ip daddr 127.0.0.0/8 accept            # the box talks to itself
 *      ip daddr 192.0.0.2 accept              # ... and is answered
 *      ip6 daddr ::1 accept
 *      ip6 daddr fd00:6865::2 accept
 *      ip saddr != 192.0.0.2 drop             # a box may bind any address: not from here
 *      ip6 saddr != fd00:6865::2 drop
 *      tcp flags & (syn|ack) == syn meta mark != 0x48 limit rate 1000/second burst 1000 packets
 *        log group 7 snaplen 128 queue-threshold 1 drop
 *      tcp flags & (syn|ack) == syn meta mark != 0x48 drop
 *      meta nfproto ipv4 meta l4proto tcp tproxy ip to 192.0.0.1:1 accept
 *      meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [fd00:6865::1]:1 accept
 *      meta nfproto ipv4 meta l4proto udp tproxy ip to 192.0.0.1:1 accept
 *      meta nfproto ipv6 meta l4proto udp tproxy ip6 to [fd00:6865::1]:1 accept
 *    } }
 *
 * So an attempt to connect is dropped and reported to the holder of KIT_REPORTS. Only the
 * holder of KIT_RAW4 and KIT_RAW6 can send the mark that lets the same packet pass. */

#include "kit/kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum { LOOPBACK = 1 /* its index in every namespace */, MANGLE = -150, ATTEMPTS_S = 1000 };
enum { FLAG_SYN = 0x02, FLAG_ACK = 0x10, FLAGS_AT = 13 /* in a TCP header */ };

static const char *const chain_name = "pre";

struct family {
    uint8_t domain;  /* AF_ */
    uint8_t nfproto; /* NFPROTO_ */
    uint8_t width;   /* bytes of an address */
    uint8_t source_at, target_at;
    uint8_t own[16], listen[16];
};

static struct family v4 = {AF_INET, NFPROTO_IPV4, 4, 12, 16, {0}, {0}};
static struct family v6 = {AF_INET6, NFPROTO_IPV6, 16, 8, 24, {0}, {0}};

/* One address on loopback, and a route that makes every address local to it. IFA_F_NODAD: else
 * the address would be tentative for a moment, and no route could have it as its source. */
static void prepare_routes(struct batch *b, const struct family *f)
{
    bool six = f->domain == AF_INET6;
    const uint32_t oif = LOOPBACK;
    const struct ifaddrmsg address = {.ifa_family = f->domain,
        .ifa_prefixlen = (uint8_t)(f->width * 8),
        .ifa_index = LOOPBACK,
        .ifa_flags = six ? IFA_F_NODAD : 0};
    batch_begin(
        b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &address, sizeof(address));
    batch_put(b, IFA_LOCAL, f->own, f->width);
    batch_put(b, IFA_ADDRESS, f->own, f->width);
    batch_end(b);
    const struct rtmsg route = {.rtm_family = f->domain,
        .rtm_table = RT_TABLE_LOCAL,
        .rtm_type = RTN_LOCAL,
        .rtm_protocol = RTPROT_STATIC,
        .rtm_scope = six ? RT_SCOPE_UNIVERSE : RT_SCOPE_HOST};
    batch_begin(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &route, sizeof(route));
    batch_put(b, RTA_OIF, &oif, sizeof(oif));
    batch_put(b, RTA_PREFSRC, f->own, f->width);
    batch_end(b);
}

/* --- one rule is a list of expressions; all of them use register 1 */

/* A rule that is being written. */
struct rule {
    struct batch *batch;
    size_t list, element, data;
};

static void begin_nft(struct batch *b, unsigned type, unsigned flags, uint8_t nfproto)
{
    const struct nfgenmsg head = {.nfgen_family = nfproto, .version = NFNETLINK_V0};
    batch_begin(b, NFNL_SUBSYS_NFTABLES << 8 | type, flags, &head, sizeof(head));
}

static void put_limit_of_batch(struct batch *b, unsigned type)
{
    const struct nfgenmsg head = {.nfgen_family = AF_UNSPEC,
        .version = NFNETLINK_V0,
        .res_id = htons(NFNL_SUBSYS_NFTABLES)};
    batch_begin(b, type, 0, &head, sizeof(head));
    batch_end(b);
}

static struct rule begin_rule(struct batch *b, const char *table, uint8_t nfproto, bool is_last)
{
    begin_nft(b, NFT_MSG_NEWRULE,
        NLM_F_CREATE | NLM_F_APPEND | (is_last ? (unsigned)NLM_F_ACK : 0u), nfproto);
    batch_put_text(b, NFTA_RULE_TABLE, table);
    batch_put_text(b, NFTA_RULE_CHAIN, chain_name);
    return (struct rule){.batch = b, .list = batch_open(b, NFTA_RULE_EXPRESSIONS)};
}

static void begin_expression(struct rule *r, const char *name)
{
    r->element = batch_open(r->batch, NFTA_LIST_ELEM);
    batch_put_text(r->batch, NFTA_EXPR_NAME, name);
    r->data = batch_open(r->batch, NFTA_EXPR_DATA);
}

static void end_expression(struct rule *r)
{
    batch_close(r->batch, r->data);
    batch_close(r->batch, r->element);
}

static void put_value(struct rule *r, unsigned type, const void *value, size_t size)
{
    size_t nest = batch_open(r->batch, type);
    batch_put(r->batch, NFTA_DATA_VALUE, value, size);
    batch_close(r->batch, nest);
}

static void read_meta(struct rule *r, uint32_t key)
{
    begin_expression(r, "meta");
    batch_put_be32(r->batch, NFTA_META_KEY, key);
    batch_put_be32(r->batch, NFTA_META_DREG, NFT_REG_1);
    end_expression(r);
}

static void read_packet(struct rule *r, uint32_t base, uint32_t offset, size_t size)
{
    begin_expression(r, "payload");
    batch_put_be32(r->batch, NFTA_PAYLOAD_DREG, NFT_REG_1);
    batch_put_be32(r->batch, NFTA_PAYLOAD_BASE, base);
    batch_put_be32(r->batch, NFTA_PAYLOAD_OFFSET, offset);
    batch_put_be32(r->batch, NFTA_PAYLOAD_LEN, (uint32_t)size);
    end_expression(r);
}

static void compare(struct rule *r, uint32_t op, const void *value, size_t size)
{
    begin_expression(r, "cmp");
    batch_put_be32(r->batch, NFTA_CMP_SREG, NFT_REG_1);
    batch_put_be32(r->batch, NFTA_CMP_OP, op);
    put_value(r, NFTA_CMP_DATA, value, size);
    end_expression(r);
}

static void mask(struct rule *r, uint8_t bits)
{
    const uint8_t none = 0;
    begin_expression(r, "bitwise");
    batch_put_be32(r->batch, NFTA_BITWISE_SREG, NFT_REG_1);
    batch_put_be32(r->batch, NFTA_BITWISE_DREG, NFT_REG_1);
    batch_put_be32(r->batch, NFTA_BITWISE_LEN, 1);
    put_value(r, NFTA_BITWISE_MASK, &bits, 1);
    put_value(r, NFTA_BITWISE_XOR, &none, 1);
    end_expression(r);
}

static void load(struct rule *r, uint32_t reg, const void *value, size_t size)
{
    begin_expression(r, "immediate");
    batch_put_be32(r->batch, NFTA_IMMEDIATE_DREG, reg);
    put_value(r, NFTA_IMMEDIATE_DATA, value, size);
    end_expression(r);
}

static void end_rule(struct rule *r, uint32_t verdict)
{
    begin_expression(r, "immediate");
    batch_put_be32(r->batch, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = batch_open(r->batch, NFTA_IMMEDIATE_DATA);
    size_t code = batch_open(r->batch, NFTA_DATA_VERDICT);
    batch_put_be32(r->batch, NFTA_VERDICT_CODE, verdict);
    batch_close(r->batch, code);
    batch_close(r->batch, data);
    end_expression(r);
    batch_close(r->batch, r->list);
    batch_end(r->batch);
}

static void match_family(struct rule *r, const struct family *f)
{
    read_meta(r, NFT_META_NFPROTO);
    compare(r, NFT_CMP_EQ, &f->nfproto, 1);
}

static void match_protocol(struct rule *r, uint8_t protocol)
{
    read_meta(r, NFT_META_L4PROTO);
    compare(r, NFT_CMP_EQ, &protocol, 1);
}

/* A SYN packet that egress has not sent. */
static void match_attempt(struct rule *r)
{
    const uint8_t syn = FLAG_SYN;
    const uint32_t mark = KIT_MARK;
    match_protocol(r, IPPROTO_TCP);
    read_packet(r, NFT_PAYLOAD_TRANSPORT_HEADER, FLAGS_AT, 1);
    mask(r, FLAG_SYN | FLAG_ACK);
    compare(r, NFT_CMP_EQ, &syn, 1);
    read_meta(r, NFT_META_MARK);
    compare(r, NFT_CMP_NEQ, &mark, sizeof(mark));
}

static void put_limit(struct rule *r)
{
    begin_expression(r, "limit");
    batch_put_be64(r->batch, NFTA_LIMIT_RATE, ATTEMPTS_S);
    batch_put_be64(r->batch, NFTA_LIMIT_UNIT, 1);
    batch_put_be32(r->batch, NFTA_LIMIT_BURST, ATTEMPTS_S);
    batch_put_be32(r->batch, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
    end_expression(r);
}

/* With a threshold of 1 the kernel reports each packet at once; else up to a second later. */
static void put_log(struct rule *r)
{
    begin_expression(r, "log");
    batch_put_be16(r->batch, NFTA_LOG_GROUP, KIT_LOG_GROUP);
    batch_put_be32(r->batch, NFTA_LOG_SNAPLEN, KIT_LOG_BYTES);
    batch_put_be16(r->batch, NFTA_LOG_QTHRESHOLD, 1);
    end_expression(r);
}

static void put_tproxy(struct rule *r, const struct family *f)
{
    const uint16_t port = htons(KIT_PORT);
    load(r, NFT_REG_1, f->listen, f->width);
    load(r, NFT_REG_2, &port, sizeof(port));
    begin_expression(r, "tproxy");
    batch_put_be32(r->batch, NFTA_TPROXY_FAMILY, f->nfproto);
    batch_put_be32(r->batch, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
    batch_put_be32(r->batch, NFTA_TPROXY_REG_PORT, NFT_REG_2);
    end_expression(r);
}

/* --- the rules */

static void begin_table(struct batch *b, const char *table, uint8_t nfproto)
{
    put_limit_of_batch(b, NFNL_MSG_BATCH_BEGIN);
    begin_nft(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, nfproto);
    batch_put_text(b, NFTA_TABLE_NAME, table);
    batch_end(b);
    begin_nft(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL, nfproto);
    batch_put_text(b, NFTA_CHAIN_TABLE, table);
    batch_put_text(b, NFTA_CHAIN_NAME, chain_name);
    size_t hook = batch_open(b, NFTA_CHAIN_HOOK);
    batch_put_be32(b, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    batch_put_be32(b, NFTA_HOOK_PRIORITY, (uint32_t)MANGLE);
    batch_close(b, hook);
    batch_put_be32(b, NFTA_CHAIN_POLICY, NF_DROP);
    batch_put_text(b, NFTA_CHAIN_TYPE, "filter");
    batch_end(b);
}

struct address_rule {
    const struct family *family;
    uint32_t offset;
    uint32_t op;
    const uint8_t *value;
    size_t size;
    uint32_t verdict;
};

static void add_address_rules(struct batch *b, uint8_t nfproto, bool has_v6)
{
    static const uint8_t loopback4[] = {127};
    static const uint8_t loopback6[16] = {[15] = 1};
    const struct address_rule rules[] = {
        {&v4, v4.target_at, NFT_CMP_EQ, loopback4, sizeof(loopback4), NF_ACCEPT},
        {&v4, v4.target_at, NFT_CMP_EQ, v4.own, v4.width, NF_ACCEPT},
        {&v6, v6.target_at, NFT_CMP_EQ, loopback6, sizeof(loopback6), NF_ACCEPT},
        {&v6, v6.target_at, NFT_CMP_EQ, v6.own, v6.width, NF_ACCEPT},
        {&v4, v4.source_at, NFT_CMP_NEQ, v4.own, v4.width, NF_DROP},
        {&v6, v6.source_at, NFT_CMP_NEQ, v6.own, v6.width, NF_DROP},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct address_rule *a = &rules[i];
        if (a->family == &v6 && !has_v6)
            continue;
        struct rule r = begin_rule(b, "hermes", nfproto, false);
        match_family(&r, a->family);
        read_packet(&r, NFT_PAYLOAD_NETWORK_HEADER, a->offset, a->size);
        compare(&r, a->op, a->value, a->size);
        end_rule(&r, a->verdict);
    }
}

static void prepare_rules(struct batch *b, bool has_v6)
{
    static const uint8_t protocols[] = {IPPROTO_TCP, IPPROTO_UDP};
    uint8_t nfproto = has_v6 ? NFPROTO_INET : NFPROTO_IPV4;
    begin_table(b, "hermes", nfproto);
    add_address_rules(b, nfproto, has_v6);
    struct rule r = begin_rule(b, "hermes", nfproto, false);
    match_attempt(&r);
    put_limit(&r);
    put_log(&r);
    end_rule(&r, NF_DROP);
    r = begin_rule(b, "hermes", nfproto, false);
    match_attempt(&r);
    end_rule(&r, NF_DROP);
    for (size_t i = 0; i < sizeof(protocols); i++) {
        for (int six = 0, last = has_v6 ? 1 : 0; six <= last; six++) {
            bool is_last = i + 1 == sizeof(protocols) && six == last;
            r = begin_rule(b, "hermes", nfproto, is_last);
            match_family(&r, six ? &v6 : &v4);
            match_protocol(&r, protocols[i]);
            put_tproxy(&r, six ? &v6 : &v4);
            end_rule(&r, NF_ACCEPT);
        }
    }
    put_limit_of_batch(b, NFNL_MSG_BATCH_END);
}

static void prepare_reports(struct batch *b)
{
    const struct nfgenmsg head = {
        .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(KIT_LOG_GROUP)};
    const struct nfulnl_msg_config_cmd bind = {.command = NFULNL_CFG_CMD_BIND};
    const struct nfulnl_msg_config_mode mode = {
        .copy_mode = NFULNL_COPY_PACKET, .copy_range = htonl(KIT_LOG_BYTES)};
    batch_begin(b, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, NLM_F_ACK, &head, sizeof(head));
    batch_put(b, NFULA_CFG_CMD, &bind, sizeof(bind));
    batch_put(b, NFULA_CFG_MODE, &mode, sizeof(mode));
    batch_put_be32(b, NFULA_CFG_QTHRESH, 1);
    batch_end(b);
}

static int learn_addresses(void)
{
    bool is_fine = inet_pton(AF_INET, KIT_BOX_V4, v4.own) == 1 &&
                   inet_pton(AF_INET, KIT_LISTEN_V4, v4.listen) == 1 &&
                   inet_pton(AF_INET6, KIT_BOX_V6, v6.own) == 1 &&
                   inet_pton(AF_INET6, KIT_LISTEN_V6, v6.listen) == 1;
    return is_fine ? 0 : -EINVAL;
}

int rules_prepare(struct kit_batches *ret)
{
    int r = learn_addresses();
    if (r < 0)
        return r;
    prepare_routes(&ret->routes4, &v4);
    prepare_routes(&ret->routes6, &v6);
    prepare_rules(&ret->rules4, false);
    prepare_rules(&ret->rules, true);
    prepare_reports(&ret->reports);
    bool is_full = ret->routes4.is_full || ret->routes6.is_full || ret->rules4.is_full ||
                   ret->rules.is_full || ret->reports.is_full;
    return is_full ? -ENOSPC : 0;
}

int rules_prepare_probe(struct batch *ret, enum kit_part part)
{
    const char table[] = {'h', (char)('0' + part), '\0'};
    begin_table(ret, table, NFPROTO_IPV4);
    struct rule r = begin_rule(ret, table, NFPROTO_IPV4, true);
    match_family(&r, &v4);
    match_protocol(&r, IPPROTO_TCP);
    if (part == PART_LIMIT)
        put_limit(&r);
    else if (part == PART_LOG)
        put_log(&r);
    else if (part == PART_TPROXY)
        put_tproxy(&r, &v4);
    end_rule(&r, NF_DROP);
    put_limit_of_batch(ret, NFNL_MSG_BATCH_END);
    return ret->is_full ? -ENOSPC : 0;
}
