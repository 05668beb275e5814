/* SPDX-License-Identifier: Apache-2.0 */

/* See entry.h. An entry has one spelling after it was parsed, so that two programs never read
 * one entry differently: what looks like an address but is not valid is refused instead of
 * being taken for a name. */

#include "network/entry.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_MAX = 63, PORT_MAX = 65535, QUOTED = 280 };

static const char *const mode_names[NETWORK_MODE_COUNT] = {
    [NETWORK_NONE] = "none",
    [NETWORK_ALLOW] = "allow",
    [NETWORK_ASK] = "ask",
    [NETWORK_FULL] = "full",
};

static const char *const protocol_names[NETWORK_PROTOCOL_COUNT] = {
    [NETWORK_TCP] = "tcp",
    [NETWORK_UDP] = "udp",
    [NETWORK_DNS] = "dns",
};

static const char *const reason_names[REASON_END - REASON_FIRST] = {
    [REASON_NOT_LISTED - REASON_FIRST] = "not_listed",
    [REASON_CLOSED_BY_OPERATOR - REASON_FIRST] = "closed_by_operator",
    [REASON_HOST_ADDRESS - REASON_FIRST] = "host_address",
    [REASON_NO_ROUTE - REASON_FIRST] = "no_route",
    [REASON_SERVER_NAME - REASON_FIRST] = "server_name",
    [REASON_UNREADABLE_HELLO - REASON_FIRST] = "unreadable_hello",
    [REASON_BYTE_LIMIT - REASON_FIRST] = "byte_limit",
    [REASON_CONNECTION_LIMIT - REASON_FIRST] = "connection_limit",
    [REASON_LOOKUP_LIMIT - REASON_FIRST] = "lookup_limit",
    [REASON_NAME_CLOSED - REASON_FIRST] = "name_closed",
    [REASON_NO_NETWORK - REASON_FIRST] = "no_network",
    [REASON_NO_SECRET - REASON_FIRST] = "secret_unavailable",
    [REASON_NOT_APPROVED - REASON_FIRST] = "not_approved",
    [REASON_NO_APPROVER - REASON_FIRST] = "approval_unavailable",
    [REASON_QUESTION_LIMIT - REASON_FIRST] = "approval_limit",
};

const char *network_mode_name(unsigned mode)
{
    return mode < NETWORK_MODE_COUNT ? mode_names[mode] : "unknown";
}

const char *network_protocol_name(unsigned protocol)
{
    return protocol < NETWORK_PROTOCOL_COUNT ? protocol_names[protocol] : "unknown";
}

const char *network_reason_name(unsigned reason)
{
    if (reason > ADDRESS_PUBLIC && reason < ADDRESS_CLASS_COUNT)
        return address_class_name((enum address_class)reason);
    const char *name = reason >= REASON_FIRST && reason < REASON_END
                           ? reason_names[reason - REASON_FIRST]
                           : NULL;
    return name ? name : "unknown";
}

/* ---- parsing ---- */

static int bad(struct err *err, const char *text, const char *why)
{
    return err_set(err, ERR_INVALID, EINVAL, "network entry `%.*s`: %s", QUOTED, text, why);
}

static bool is_label(const char *s, size_t len)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    return len > 0 && len <= LABEL_MAX && s[0] != '-' && s[len - 1] != '-' &&
           strspn(s, allowed) >= len;
}

bool network_name_is_valid(const char *name)
{
    if (strlen(name) >= NETWORK_NAME)
        return false;
    for (const char *label = name;; label++) {
        size_t len = strcspn(label, ".");
        if (!is_label(label, len))
            return false;
        label += len;
        if (!*label)
            return !network_name_is_number(name);
    }
}

static bool is_ascii(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text >= 0x80)
            return false;
    }
    return true;
}

/* Lower case, and without one trailing dot. */
static void normalise(char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++) {
        if (name[i] >= 'A' && name[i] <= 'Z')
            name[i] = (char)(name[i] - 'A' + 'a');
    }
    if (len > 1 && name[len - 1] == '.')
        name[len - 1] = '\0';
}

static int parse_name(struct network_entry *ret, const char *text, char *name, struct err *err)
{
    if (!is_ascii(name))
        return bad(err, text,
            "names are written in ASCII; write an international name in its xn-- form");
    normalise(name);
    ret->target = TARGET_NAME;
    if (str_has_prefix(name, "*.")) {
        ret->target = TARGET_BELOW;
        name += 2;
    }
    if (str_eq(name, "*"))
        return bad(err, text, "there is no entry for every host; ask for \"full\" instead");
    if (strchr(name, '*'))
        return bad(err, text, "`*` stands only for the first labels of a name: *.example.com");
    if (!network_name_is_valid(name))
        return bad(err, text, "it names neither a host nor an address");
    memcpy(ret->name, name, strlen(name) + 1);
    return 0;
}

static int parse_range(
    struct network_entry *ret, const char *text, const char *range, struct err *err)
{
    ret->target = TARGET_RANGE;
    if (address_range_parse(&ret->range, range) == 0)
        return 0;
    return bad(err, text,
        strchr(range, '/')
            ? "it is not a range; the bits behind the length must be zero: 203.0.113.0/24"
            : "it is not an address");
}

static int parse_port(const char *text, uint16_t *ret)
{
    uint32_t port = 0;
    if (text[0] == '0' || str_parse_u32(text, &port) < 0 || port == 0 || port > PORT_MAX)
        return -EINVAL;
    *ret = (uint16_t)port;
    return 0;
}

static int parse_ports(
    struct network_entry *ret, const char *text, char *ports, struct err *err)
{
    char *dash = strchr(ports, '-');
    int r;
    if (str_eq(ports, "*")) {
        ret->first_port = 1;
        ret->last_port = PORT_MAX;
        return 0;
    }
    if (dash)
        *dash = '\0';
    r = parse_port(ports, &ret->first_port);
    if (r == 0)
        r = parse_port(dash ? dash + 1 : ports, &ret->last_port);
    if (r < 0 || ret->first_port > ret->last_port)
        return bad(err, text, "ports are a number, n-m or *, from 1 to 65535");
    return 0;
}

/* Cuts the target out of the rest: the text in brackets, or the text before the first colon.
 * *ret_ports is NULL when there are none. */
static int split_target(
    char *rest, char **ret_target, char **ret_ports, const char *text, struct err *err)
{
    char *end = rest[0] == '[' ? strchr(rest, ']') : strchr(rest, ':');
    *ret_target = rest[0] == '[' ? rest + 1 : rest;
    *ret_ports = NULL;
    if (rest[0] == '[') {
        if (!end || (end[1] && end[1] != ':'))
            return bad(err, text, "an IPv6 address is written [address], and a port after it");
        *ret_ports = end[1] ? end + 2 : NULL;
        *end = '\0';
        return 0;
    }
    if (end && strchr(end + 1, ':'))
        return bad(err, text, "write an IPv6 address in brackets: [2001:db8::1]:443");
    if (end) {
        *end = '\0';
        *ret_ports = end + 1;
    }
    return 0;
}

static int parse_target(struct network_entry *ret, const char *text, char *target,
    bool is_bracketed, struct err *err)
{
    bool is_range = strspn(target, "0123456789./") == strlen(target) && target[0];
    const char *slash = strchr(target, '/');
    if (is_bracketed) {
        if (!strchr(target, ':'))
            return bad(err, text, "brackets are for IPv6 addresses");
        return parse_range(ret, text, target, err);
    }
    if (!target[0])
        return bad(err, text, "it names no host");
    if (strstr(text, "://"))
        return bad(err, text, "it is an address of a page; write only the host: example.com");
    if (slash && !is_range)
        return bad(err, text, "after a name only `:PORTS` and `/udp` may follow");
    return is_range ? parse_range(ret, text, target, err) : parse_name(ret, text, target, err);
}

int network_entry_parse(struct network_entry *ret, const char *text, struct err *err)
{
    struct network_entry entry = {.protocol = NETWORK_TCP};
    char copy[NETWORK_ENTRY_TEXT + 1];
    char *target;
    char *ports;
    size_t len = strlen(text);
    if (len >= sizeof(copy))
        return bad(err, text, "it is too long");
    memcpy(copy, text, len + 1);
    if (str_has_suffix(copy, "/udp")) {
        entry.protocol = NETWORK_UDP;
        copy[len - strlen("/udp")] = '\0';
    }
    int r = split_target(copy, &target, &ports, text, err);
    if (r == 0)
        r = parse_target(&entry, text, target, copy[0] == '[', err);
    if (r == 0 && ports)
        r = parse_ports(&entry, text, ports, err);
    if (r < 0)
        return r;
    entry.is_web = !ports;
    *ret = entry;
    return 0;
}

void network_entry_print(const struct network_entry *entry, char text[NETWORK_ENTRY_TEXT])
{
    char range[ADDRESS_TEXT] = "";
    char ports[16] = "";
    bool is_range = entry->target == TARGET_RANGE;
    if (is_range)
        address_range_print(&entry->range, range);
    bool is_v6 = strchr(range, ':') != NULL;
    if (!entry->is_web && entry->first_port == 1 && entry->last_port == PORT_MAX)
        (void)snprintf(ports, sizeof(ports), ":*");
    else if (!entry->is_web && entry->first_port == entry->last_port)
        (void)snprintf(ports, sizeof(ports), ":%u", entry->first_port);
    else if (!entry->is_web)
        (void)snprintf(ports, sizeof(ports), ":%u-%u", entry->first_port, entry->last_port);
    (void)snprintf(text, NETWORK_ENTRY_TEXT, "%s%s%s%s%s%s", is_v6 ? "[" : "",
        entry->target == TARGET_BELOW ? "*." : "", is_range ? range : entry->name,
        is_v6 ? "]" : "", ports, entry->protocol == NETWORK_UDP ? "/udp" : "");
}

/* ---- the ceiling ---- */

static int forbid(struct err *err, const struct network_entry *entry, const char *why)
{
    char text[NETWORK_ENTRY_TEXT];
    network_entry_print(entry, text);
    return err_set(err, ERR_FORBIDDEN, EPERM, "network entry `%s`: %s", text, why);
}

static int forbid_closed(struct err *err, const struct network_entry *entry)
{
    char why[160];
    enum address_class class =
        entry->target == TARGET_RANGE ? address_range_classify(&entry->range) : ADDRESS_PUBLIC;
    if (class == ADDRESS_PUBLIC)
        return forbid(err, entry, "the operator has closed it");
    (void)snprintf(why, sizeof(why),
        "it contains addresses that are closed (%s) unless the operator opens them",
        address_class_name(class));
    return forbid(err, entry, why);
}

int network_policy_check(
    const struct network_policy *policy, const struct network_ceiling *ceiling, struct err *err)
{
    unsigned at;
    switch (network_policy_excess(policy, ceiling, &at)) {
    case EXCESS_NOTHING:
        return 0;
    case EXCESS_MODE:
        return err_set(err, ERR_FORBIDDEN, EPERM,
            "this server allows the network mode \"%s\" at most (setting network_max)",
            network_mode_name(ceiling->max_mode));
    case EXCESS_UPSTREAM:
        return err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "the mode \"%s\" is not enforced behind the upstream proxy, because the proxy is "
            "not known to refuse closed addresses (setting network_upstream_filters)",
            network_mode_name(policy->mode));
    case EXCESS_CLOSED:
        return forbid_closed(err, &policy->entries[at]);
    case EXCESS_NOT_ALLOWED:
    default:
        return forbid(err, &policy->entries[at], "it is not within what the operator allows");
    }
}
