/* SPDX-License-Identifier: Apache-2.0 */

/* Tells by name what this kernel lacks for a kit. */

#include "kit/kit.h"

#include "base/cleanup.h"

#include <linux/netlink.h>
#include <sys/socket.h>

/* Tries a whole kit in a new namespace. */
static int try_kit(const struct kit_batches *batches, bool *ret_has_v6, enum kit_part *ret_part)
{
    struct kit kit;
    cleanup_close int fd = place_make(ret_part);
    int r = fd < 0 ? fd : kit_install(batches, &kit, ret_part);
    if (r < 0)
        return r;
    *ret_has_v6 = kit.has_v6;
    kit_close(&kit);
    return 0;
}

/* Tries each part of the rules alone. All are one batch in a kit: the kernel's answer does not
 * say what it lacks. */
static uint32_t find_missing(void)
{
    static const enum kit_part parts[] = {PART_RULES, PART_LIMIT, PART_LOG, PART_TPROXY};
    enum kit_part part;
    uint32_t missing = 0;
    cleanup_close int fd = place_make(&part);
    for (size_t i = 0; fd >= 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
        static struct batch b;
        b = (struct batch){.len = 0};
        int r = rules_prepare_probe(&b, parts[i]);
        if (r == 0)
            r = fault_error(parts[i]);
        if (r == 0)
            r = batch_tell(NETLINK_NETFILTER, &b);
        if (r < 0)
            missing |= 1u << parts[i];
        if (r < 0 && parts[i] == PART_RULES)
            break; /* the others need it */
    }
    return missing;
}

int probe_kit(const struct kit_batches *batches, struct kit_answer *ret)
{
    bool has_v6 = false;
    enum kit_part part = PART_NAMESPACE;
    int r = try_kit(batches, &has_v6, &part);
    ret->has_v6 = has_v6;
    ret->part = part;
    ret->missing = r < 0 ? 1u << part : has_v6 ? 0 : 1u << PART_IPV6;
    if (r < 0 && part == PART_RULES) {
        uint32_t found = find_missing();
        ret->missing = found ? found : ret->missing;
        for (part = 0; found && !(found & 1u << part);)
            part++;
        ret->part = part;
    }
    return r;
}
