/* SPDX-License-Identifier: Apache-2.0 */

/* See mode.h. A file of its own, since the reader of settings needs no more of approvals. */

#include "approval/mode.h"

#include "base/str.h"

#include <errno.h>
#include <stddef.h>

static const char *const mode_names[] = {[APPROVAL_OFF] = "off",
    [APPROVAL_MANUAL] = "manual",
    [APPROVAL_SMART] = "smart",
    [APPROVAL_GATED] = "gated"};

int approval_mode_find(const char *name)
{
    for (size_t i = 0; i < sizeof(mode_names) / sizeof(mode_names[0]); i++) {
        if (str_eq(mode_names[i], name))
            return (int)i;
    }
    return -ENOENT;
}

const char *approval_mode_name(enum approval_mode mode)
{
    return mode_names[mode];
}
