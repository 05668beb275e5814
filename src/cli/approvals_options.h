/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The keys of the options of `hermes approvals`. */

enum {
    APPROVALS_URL = 256,
    APPROVALS_UNIX,
    APPROVALS_JSON,
    APPROVALS_STATE,
    APPROVALS_SCOPE,
    APPROVALS_COMMENT,
    APPROVALS_HEAD,
};
