/* SPDX-License-Identifier: Apache-2.0 */

/* See policy.h. */

#include "network/policy.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "network/entry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct network_limits network_no_limits = {.connections = UINT32_MAX,
    .connections_all = UINT32_MAX,
    .connections_s = UINT32_MAX,
    .lookups = UINT32_MAX,
    .sent_bytes = UINT64_MAX,
    .received_bytes = UINT64_MAX,
    .bytes_s = UINT64_MAX};

struct network_policy *network_policy_new(unsigned mode)
{
    struct network_policy *policy = xcalloc(1, sizeof(*policy));
    policy->mode = mode;
    policy->limits = network_no_limits;
    return policy;
}

struct network_policy *network_policy_copy(const struct network_policy *policy)
{
    if (!policy)
        return NULL;
    struct network_policy *copy = xmalloc(sizeof(*copy));
    *copy = *policy;
    return copy;
}

static int too_many(const char *field, struct err *err)
{
    return err_field(
        err, field, "%s has more than %d entries", field, (int)NETWORK_MAX_ENTRIES);
}

/* Adds an entry; an error names `field`. */
static int add_entry(
    struct network_policy *policy, const char *text, const char *field, struct err *err)
{
    int r = network_entry_parse(&policy->entries[policy->entry_count], text, err);
    if (r < 0 && err)
        (void)snprintf(err->field, sizeof(err->field), "%s", field);
    policy->entry_count += r == 0;
    return r;
}

static int take_list(
    struct network_policy *policy, const json_t *list, const char *field, struct err *err)
{
    int r = 0;
    if (!json_is_array(list))
        return err_field(err, field, "%s must be a list of strings", field);
    if (json_array_size(list) > NETWORK_MAX_ENTRIES)
        return too_many(field, err);
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        char name[sizeof(err->field)];
        (void)snprintf(name, sizeof(name), "%.60s[%zu]", field, i);
        if (!json_is_string(item) ||
            strlen(json_string_value(item)) != json_string_length(item))
            return err_field(err, name, "%s must be a string without NUL", name);
        r = add_entry(policy, json_string_value(item), name, err);
    }
    return r;
}

int network_policy_decode(
    const json_t *value, const char *field, struct network_policy **ret, struct err *err)
{
    const char *word = json_string_value(value);
    *ret = NULL;
    if (str_eq(word, "none"))
        return 0;
    if (str_eq(word, "full")) {
        *ret = network_policy_new(NETWORK_FULL);
        return 0;
    }
    const json_t *allow = json_object_get(value, "allow");
    const json_t *ask = json_object_get(value, "ask");
    if (json_object_size(value) != 1 || !(allow || ask))
        return err_field(err, field,
            "%s must be \"none\", \"full\", {\"allow\": [...]} or {\"ask\": [...]}", field);
    cleanup_free struct network_policy *policy =
        network_policy_new(allow ? NETWORK_ALLOW : NETWORK_ASK);
    char list[sizeof(err->field)];
    (void)snprintf(list, sizeof(list), "%.60s.%s", field, network_mode_name(policy->mode));
    int r = take_list(policy, allow ? allow : ask, list, err);
    if (r == 0)
        *ret = take_ptr(policy);
    return r;
}

int network_policy_parse(const char *text, struct network_policy **ret, struct err *err)
{
    static const char field[] = "--network";
    bool is_ask = str_has_prefix(text, "ask=");
    *ret = NULL;
    if (str_eq(text, "none"))
        return 0;
    if (str_eq(text, "full")) {
        *ret = network_policy_new(NETWORK_FULL);
        return 0;
    }
    if (!is_ask && !str_has_prefix(text, "allow="))
        return err_field(
            err, field, "--network takes none, full, allow=HOST,... or ask=HOST,...");
    cleanup_free struct network_policy *policy =
        network_policy_new(is_ask ? NETWORK_ASK : NETWORK_ALLOW);
    cleanup_free char *list = xstrdup(strchr(text, '=') + 1);
    for (char *at = list, *item; (item = strsep(&at, ","));) {
        if (policy->entry_count == NETWORK_MAX_ENTRIES)
            return too_many(field, err);
        int r = add_entry(policy, item, field, err);
        if (r < 0)
            return r;
    }
    *ret = take_ptr(policy);
    return 0;
}

json_t *network_policy_json(const struct network_policy *policy)
{
    const char *mode = network_mode_name(policy ? policy->mode : NETWORK_NONE);
    if (!policy || policy->mode == NETWORK_NONE || policy->mode == NETWORK_FULL)
        return json_string(mode);
    json_t *list = json_array();
    for (uint32_t i = 0; i < policy->entry_count; i++) {
        char text[NETWORK_ENTRY_TEXT];
        network_entry_print(&policy->entries[i], text);
        (void)json_array_append_new(list, json_string(text));
    }
    return json_pack("{s:o}", mode, list);
}

void network_policy_limit(struct network_policy *policy, const struct run_limits *limits)
{
    if (limits->network_connections < policy->limits.connections)
        policy->limits.connections = (uint32_t)limits->network_connections;
    uint64_t bytes = limits->network_mb << 20;
    if (bytes < policy->limits.sent_bytes)
        policy->limits.sent_bytes = bytes;
    if (bytes < policy->limits.received_bytes)
        policy->limits.received_bytes = bytes;
}
