/* SPDX-License-Identifier: Apache-2.0 */

/* Entries of allow lists, from requests. What parses has one spelling, and that spelling parses
 * to the same entry. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "network/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct network_ceiling ceiling = {.max_mode = NETWORK_FULL};
    static struct network_policy policy = {.mode = NETWORK_ALLOW, .entry_count = 1};
    struct network_entry *entry = &policy.entries[0];
    struct network_entry again;
    struct err err = {0};
    char text[NETWORK_ENTRY_TEXT];
    cleanup_free char *input = xstrndup((const char *)data, size);

    if (network_entry_parse(entry, input, &err) < 0) {
        check(err.code == ERR_INVALID && err.message[0]);
        return 0;
    }
    check(entry->protocol == NETWORK_TCP || entry->protocol == NETWORK_UDP);
    check(entry->is_web || (entry->first_port > 0 && entry->first_port <= entry->last_port));
    check(entry->target == TARGET_RANGE || network_name_is_valid(entry->name));
    network_entry_print(entry, text);
    check(network_entry_parse(&again, text, &err) == 0);
    check(memcmp(&again, entry, sizeof(again)) == 0);
    if (network_policy_check(&policy, &ceiling, &err) == 0 && entry->target == TARGET_RANGE)
        check(address_range_classify(&entry->range) == ADDRESS_PUBLIC);
    return 0;
}
