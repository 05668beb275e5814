/* SPDX-License-Identifier: Apache-2.0 */

/* See network.h. The server refuses a policy above the ceiling and says why. Egress enforces
 * the same rules on whatever a server sends. */

#include "proto/network.h"

#include <stddef.h>
#include <string.h>

enum { PORT_HTTP = 80, PORT_HTTPS = 443 };

static bool name_ends(const char *name, size_t size)
{
    return memchr(name, '\0', size) != NULL;
}

static bool range_is_valid(const struct address_range *range)
{
    return range->bits <= 128;
}

static bool entry_is_valid(const struct network_entry *entry)
{
    bool has_target = entry->target == TARGET_RANGE
                          ? range_is_valid(&entry->range)
                          : (entry->target == TARGET_NAME || entry->target == TARGET_BELOW) &&
                                name_ends(entry->name, sizeof(entry->name)) && entry->name[0];
    bool has_ports = entry->is_web || entry->first_port <= entry->last_port;
    return has_target && has_ports &&
           (entry->protocol == NETWORK_TCP || entry->protocol == NETWORK_UDP);
}

static bool limits_are_valid(const struct network_limits *limits)
{
    return limits->connections && limits->connections_all && limits->connections_s &&
           limits->lookups && limits->sent_bytes && limits->received_bytes && limits->bytes_s;
}

static bool entries_are_valid(const struct network_entry *entries, uint32_t count)
{
    if (count > NETWORK_MAX_ENTRIES)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!entry_is_valid(&entries[i]))
            return false;
    return true;
}

bool network_policy_is_valid(const struct network_policy *policy)
{
    return policy->mode < NETWORK_MODE_COUNT && limits_are_valid(&policy->limits) &&
           entries_are_valid(policy->entries, policy->entry_count);
}

static bool ranges_are_valid(const struct address_range *ranges, uint32_t count)
{
    if (count > NETWORK_MAX_RANGES)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!range_is_valid(&ranges[i]))
            return false;
    return true;
}

bool network_ceiling_is_valid(const struct network_ceiling *ceiling)
{
    if (ceiling->max_mode >= NETWORK_MODE_COUNT ||
        ceiling->closed_name_count > NETWORK_MAX_NAMES ||
        ceiling->resolver_count > NETWORK_MAX_RESOLVERS ||
        ceiling->secret_count > NETWORK_MAX_SECRETS)
        return false;
    for (uint32_t i = 0; i < ceiling->secret_count; i++)
        if (!name_ends(ceiling->secrets[i].host, NETWORK_NAME))
            return false;
    for (uint32_t i = 0; i < ceiling->closed_name_count; i++)
        if (!name_ends(ceiling->closed_names[i], NETWORK_NAME))
            return false;
    return ranges_are_valid(ceiling->open, ceiling->open_count) &&
           ranges_are_valid(ceiling->closed, ceiling->closed_count) &&
           entries_are_valid(ceiling->allowed, ceiling->allowed_count) &&
           limits_are_valid(&ceiling->box_max) && limits_are_valid(&ceiling->key_max) &&
           name_ends(ceiling->upstream_credentials, sizeof(ceiling->upstream_credentials));
}

bool network_name_is_in(const char *name, const char *above)
{
    size_t len = strlen(name);
    size_t above_len = strlen(above);
    if (len < above_len || strcmp(name + len - above_len, above) != 0)
        return false;
    return len == above_len || name[len - above_len - 1] == '.';
}

bool network_name_is_number(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *last = dot ? dot + 1 : name;
    bool is_hex = last[0] == '0' && last[1] == 'x';
    return strspn(last, "0123456789") == strlen(last) ||
           (is_hex && strspn(last + 2, "0123456789abcdef") == strlen(last + 2));
}

bool network_entry_has_name(const struct network_entry *entry, const char *name)
{
    if (entry->target == TARGET_NAME)
        return strcmp(entry->name, name) == 0;
    return entry->target == TARGET_BELOW && strcmp(entry->name, name) != 0 &&
           network_name_is_in(name, entry->name);
}

static bool has_ports(const struct network_entry *entry, uint16_t first, uint16_t last)
{
    if (!entry->is_web)
        return entry->first_port <= first && last <= entry->last_port;
    return first == last && (first == PORT_HTTP || first == PORT_HTTPS);
}

bool network_entry_has_port(
    const struct network_entry *entry, enum network_protocol protocol, uint16_t port)
{
    return entry->protocol == protocol && has_ports(entry, port, port);
}

static bool covers_target(const struct network_entry *outer, const struct network_entry *inner)
{
    if (inner->target == TARGET_RANGE || outer->target == TARGET_RANGE)
        return inner->target == outer->target &&
               address_range_covers(&outer->range, &inner->range);
    if (inner->target == TARGET_NAME)
        return network_entry_has_name(outer, inner->name);
    return outer->target == TARGET_BELOW && network_name_is_in(inner->name, outer->name);
}

static bool is_allowed(const struct network_ceiling *ceiling, const struct network_entry *entry,
    uint16_t first, uint16_t last)
{
    for (uint32_t i = 0; i < ceiling->allowed_count; i++) {
        const struct network_entry *outer = &ceiling->allowed[i];
        if (outer->protocol == entry->protocol && has_ports(outer, first, last) &&
            covers_target(outer, entry))
            return true;
    }
    return false;
}

static bool entry_is_allowed(
    const struct network_ceiling *ceiling, const struct network_entry *entry)
{
    if (ceiling->max_mode != NETWORK_ALLOW || ceiling->allowed_count == 0)
        return true;
    if (entry->is_web)
        return is_allowed(ceiling, entry, PORT_HTTP, PORT_HTTP) &&
               is_allowed(ceiling, entry, PORT_HTTPS, PORT_HTTPS);
    return is_allowed(ceiling, entry, entry->first_port, entry->last_port);
}

static bool is_covered(
    const struct address_range *ranges, uint32_t count, const struct address_range *range)
{
    for (uint32_t i = 0; i < count; i++)
        if (address_range_covers(&ranges[i], range))
            return true;
    return false;
}

static bool entry_is_closed(
    const struct network_ceiling *ceiling, const struct network_entry *entry)
{
    if (entry->target == TARGET_RANGE)
        return is_covered(ceiling->closed, ceiling->closed_count, &entry->range) ||
               (address_range_classify(&entry->range) != ADDRESS_PUBLIC &&
                   !is_covered(ceiling->open, ceiling->open_count, &entry->range));
    for (uint32_t i = 0; i < ceiling->closed_name_count; i++)
        if (network_name_is_in(entry->name, ceiling->closed_names[i]))
            return true;
    return false;
}

enum network_excess network_policy_excess(const struct network_policy *policy,
    const struct network_ceiling *ceiling, unsigned *ret_entry)
{
    *ret_entry = 0;
    if (policy->mode > ceiling->max_mode)
        return EXCESS_MODE;
    if (policy->mode > NETWORK_ALLOW && ceiling->upstream_port && !ceiling->upstream_filters)
        return EXCESS_UPSTREAM;
    for (unsigned i = 0; i < policy->entry_count; i++) {
        *ret_entry = i;
        if (entry_is_closed(ceiling, &policy->entries[i]))
            return EXCESS_CLOSED;
        if (!entry_is_allowed(ceiling, &policy->entries[i]))
            return EXCESS_NOT_ALLOWED;
    }
    return EXCESS_NOTHING;
}

static uint32_t lower32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint64_t lower64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void network_limits_lower(struct network_limits *limits, const struct network_limits *max)
{
    limits->connections = lower32(limits->connections, max->connections);
    limits->connections_all = lower32(limits->connections_all, max->connections_all);
    limits->connections_s = lower32(limits->connections_s, max->connections_s);
    limits->lookups = lower32(limits->lookups, max->lookups);
    limits->sent_bytes = lower64(limits->sent_bytes, max->sent_bytes);
    limits->received_bytes = lower64(limits->received_bytes, max->received_bytes);
    limits->bytes_s = lower64(limits->bytes_s, max->bytes_s);
}
