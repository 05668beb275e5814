/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Turns a directory into the canonical tar of a layer. The digest of that stream is the name of
 * the layer. */

#include "base/err.h"
#include "base/strv.h"
#include "layer/tar.h"

/* Writes the tree below dir_fd. Leaves out what a pattern of `leave_out` matches
 * (str_glob_match() on the path without a slash at the end; a directory goes with all that is
 * in it), sockets, fifos and devices. -EINVAL and ERR_INVALID when the tree has what no layer
 * can have: a name that begins with ".wh.", more levels or longer paths than a layer may
 * have. */
int layer_pack(int dir_fd, const struct strv *leave_out, layer_sink *write, void *context,
    struct err *err);
