/* SPDX-License-Identifier: Apache-2.0 */

/* See policy.h. Closed ranges come before everything that a policy says; an opened range is
 * usable only where an entry lists it. */

#include "egress/policy.h"

#include "egress/dns.h"

#include <string.h>

/* Names that have no meaning on the public internet, and the names below them. Names of whole
 * addresses are decided as their address; the zones above them tell of private networks. */
static const char *const private_names[] = {"localhost", "local", "internal", "home.arpa",
    "onion", "invalid", "test", "lan", "corp", "home", "in-addr.arpa", "ip6.arpa"};

/* NAT64: the last four bytes are the IPv4 address that is reached. */
static const struct address_range nat64 = {{{0, 0x64, 0xff, 0x9b}}, 96};

bool policy_enforce(struct network_policy *policy, const struct network_ceiling *ceiling)
{
    unsigned entry;
    if (!network_policy_is_valid(policy)) {
        *policy = (struct network_policy){.mode = NETWORK_NONE, .limits = ceiling->box_max};
        return false;
    }
    network_limits_lower(&policy->limits, &ceiling->box_max);
    if (network_policy_excess(policy, ceiling, &entry) == EXCESS_NOTHING)
        return true;
    policy->mode = NETWORK_NONE;
    return false;
}

static bool has_network(const struct network_policy *policy)
{
    return policy->mode > NETWORK_NONE && policy->mode < NETWORK_MODE_COUNT;
}

static bool is_in(
    const struct address_range *ranges, uint32_t count, const struct address *address)
{
    for (uint32_t i = 0; i < count; i++)
        if (address_in_range(address, &ranges[i]))
            return true;
    return false;
}

/* See closed_reason(); of this very address. */
static uint32_t closed_itself(
    const struct network_ceiling *ceiling, const struct address *address, bool *ret_is_opened)
{
    enum address_class class = address_classify(address);
    *ret_is_opened = false;
    if (is_in(ceiling->closed, ceiling->closed_count, address))
        return REASON_CLOSED_BY_OPERATOR;
    if (class == ADDRESS_PUBLIC)
        return 0;
    *ret_is_opened = is_in(ceiling->open, ceiling->open_count, address);
    return *ret_is_opened ? 0 : class;
}

/* Why an address is closed, even if a policy lists it. *ret_is_opened: usable only where an
 * entry lists it. Opening NAT64 does not open closed addresses behind it. */
static uint32_t closed_reason(
    const struct network_ceiling *ceiling, const struct address *address, bool *ret_is_opened)
{
    uint32_t reason = closed_itself(ceiling, address, ret_is_opened);
    if (reason || !address_in_range(address, &nat64))
        return reason;
    struct address behind = address_v4(address->bytes + sizeof(address->bytes) - 4);
    bool is_opened;
    return closed_itself(ceiling, &behind, &is_opened);
}

static bool name_is_closed(const struct network_ceiling *ceiling, const char *name)
{
    for (uint32_t i = 0; i < ceiling->closed_name_count; i++)
        if (network_name_is_in(name, ceiling->closed_names[i]))
            return true;
    return false;
}

/* Whether an entry permits a name at a port; with port 0, at any port of any protocol. */
static bool name_is_listed(const struct network_policy *policy, const char *name,
    enum network_protocol protocol, uint16_t port)
{
    for (uint32_t i = 0; i < policy->entry_count; i++) {
        const struct network_entry *entry = &policy->entries[i];
        if (network_entry_has_name(entry, name) &&
            (port == 0 || network_entry_has_port(entry, protocol, port)))
            return true;
    }
    return false;
}

static bool address_is_listed(const struct network_policy *policy,
    const struct address *address, enum network_protocol protocol, uint16_t port)
{
    for (uint32_t i = 0; i < policy->entry_count; i++) {
        const struct network_entry *entry = &policy->entries[i];
        if (entry->target == TARGET_RANGE && address_in_range(address, &entry->range) &&
            (port == 0 || network_entry_has_port(entry, protocol, port)))
            return true;
    }
    return false;
}

static void set_host(struct decision *d, const char *name)
{
    size_t len = strlen(name);
    if (len < sizeof(d->host))
        memcpy(d->host, name, len + 1);
}

/* Finds a name that permits the address: one that is pinned to it and listed. */
static bool find_listed_name(struct decision *d, const struct policy_view *view,
    enum network_protocol protocol, const struct address *address, uint16_t port)
{
    size_t at = 0;
    for (const char *name; (name = pins_next(view->pins, address, view->now_ms, &at));) {
        if (!name_is_closed(view->ceiling, name) &&
            name_is_listed(view->policy, name, protocol, port)) {
            set_host(d, name);
            return true;
        }
    }
    return false;
}

/* A stand-in address means its name, and nothing without one. */
static uint32_t decide_stand_in(struct decision *d, const struct policy_view *view,
    enum network_protocol protocol, const struct address *address, uint16_t port)
{
    size_t at = 0;
    const char *name = pins_next(view->pins, address, view->now_ms, &at);
    if (!name)
        return REASON_NOT_LISTED;
    if (name_is_closed(view->ceiling, name))
        return REASON_CLOSED_BY_OPERATOR;
    if (view->policy->mode == NETWORK_FULL ||
        (view->ceiling->upstream_resolves &&
            name_is_listed(view->policy, name, protocol, port))) {
        d->is_by_name = view->policy->mode != NETWORK_FULL;
        return 0;
    }
    d->must_ask = view->policy->mode == NETWORK_ASK;
    d->is_by_name = d->must_ask;
    return REASON_NOT_LISTED;
}

static uint32_t decide(struct decision *d, const struct policy_view *view,
    enum network_protocol protocol, const struct address *address, uint16_t port)
{
    bool is_opened;
    bool has_stand_ins = view->policy->mode == NETWORK_ASK ||
                         (view->ceiling->upstream_port && view->ceiling->upstream_resolves);
    if (!has_network(view->policy))
        return REASON_NO_NETWORK;
    if (has_stand_ins && pins_is_stand_in(address))
        return decide_stand_in(d, view, protocol, address, port);
    uint32_t reason = closed_reason(view->ceiling, address, &is_opened);
    if (reason)
        return reason;
    if (view->policy->mode == NETWORK_FULL)
        return is_opened ? address_classify(address) : 0;
    if (address_is_listed(view->policy, address, protocol, port))
        return 0;
    d->is_by_name = find_listed_name(d, view, protocol, address, port);
    if (d->is_by_name)
        return 0;
    size_t at = 0;
    d->must_ask = view->policy->mode == NETWORK_ASK && !is_opened;
    d->is_by_name = d->must_ask && pins_next(view->pins, address, view->now_ms, &at);
    return REASON_NOT_LISTED;
}

void policy_decide(struct decision *ret, const struct policy_view *view,
    enum network_protocol protocol, const struct address *address, uint16_t port)
{
    char text[ADDRESS_TEXT];
    size_t at = 0;
    *ret = (struct decision){0};
    address_print(address, text);
    set_host(ret, text);
    const char *name = pins_next(view->pins, address, view->now_ms, &at);
    if (name)
        set_host(ret, name);
    ret->reason = decide(ret, view, protocol, address, port);
}

static uint32_t decide_reverse(const struct policy_view *view, const struct address *address)
{
    bool is_opened;
    uint32_t reason = closed_reason(view->ceiling, address, &is_opened);
    if (reason)
        return reason;
    if (view->policy->mode == NETWORK_FULL)
        return is_opened ? address_classify(address) : 0;
    return address_is_listed(view->policy, address, NETWORK_TCP, 0) ? 0 : REASON_NOT_LISTED;
}

static bool name_is_private(const char *name)
{
    if (!strchr(name, '.'))
        return true;
    for (size_t i = 0; i < sizeof(private_names) / sizeof(private_names[0]); i++)
        if (network_name_is_in(name, private_names[i]))
            return true;
    return false;
}

uint32_t policy_decide_name(const struct policy_view *view, const char *name)
{
    struct address address;
    if (!has_network(view->policy))
        return REASON_NO_NETWORK;
    if (name_is_closed(view->ceiling, name))
        return REASON_CLOSED_BY_OPERATOR;
    if (network_name_is_number(name))
        return REASON_NAME_CLOSED;
    if (dns_reverse(&address, name))
        return decide_reverse(view, &address);
    if (view->policy->mode == NETWORK_FULL)
        return name_is_private(name) ? REASON_NAME_CLOSED : 0;
    if (name_is_listed(view->policy, name, NETWORK_TCP, 0))
        return 0;
    if (view->policy->mode == NETWORK_ASK)
        return name_is_private(name) ? REASON_NAME_CLOSED : 0;
    return REASON_NOT_LISTED;
}

bool policy_name_is_asked(const struct policy_view *view, const char *name)
{
    struct address address;
    return view->policy->mode == NETWORK_ASK && !dns_reverse(&address, name) &&
           !name_is_listed(view->policy, name, NETWORK_TCP, 0);
}

uint32_t policy_decide_approved(const struct policy_view *view, const struct address *address)
{
    bool is_opened;
    uint32_t reason = closed_reason(view->ceiling, address, &is_opened);
    return is_opened ? address_classify(address) : reason;
}

uint32_t policy_decide_answer(const struct policy_view *view, const struct address *address)
{
    bool is_opened;
    uint32_t reason = closed_reason(view->ceiling, address, &is_opened);
    if (reason || !is_opened || view->policy->mode != NETWORK_FULL)
        return reason;
    return address_classify(address);
}

static bool name_is_permitted(const struct policy_view *view, const char *name,
    enum network_protocol protocol, uint16_t port)
{
    return !name_is_closed(view->ceiling, name) &&
           name_is_listed(view->policy, name, protocol, port);
}

uint32_t policy_decide_server(const struct policy_view *view, const char *name, uint16_t port)
{
    return name_is_permitted(view, name, NETWORK_TCP, port) ? 0 : REASON_SERVER_NAME;
}

void policy_decide_again(struct decision *ret, const struct policy_view *view,
    const struct network_row *what, const struct address *address)
{
    policy_decide(ret, view, what->protocol, address, what->port);
    if (ret->reason != REASON_NOT_LISTED ||
        !name_is_permitted(view, what->host, what->protocol, what->port))
        return;
    ret->reason = 0;
    ret->is_by_name = true;
    ret->must_ask = false;
}
