/* SPDX-License-Identifier: Apache-2.0 */
/* jetdvfs.h for blocks of C++: a connection and a frame end with theirs.
 *
 *     jetdvfs::client daemon;
 *     ...
 *     while (more()) {
 *         jetdvfs::frame frame(daemon);
 *         infer();
 *     }
 */
#ifndef JETDVFS_HPP
#define JETDVFS_HPP

#include "jetdvfs.h"

namespace jetdvfs {

/* A connection, with which the lease it holds ends. Whether there is a daemon says its member `socket`. */
struct client : jetdvfs_client {
    explicit client(const char *socket_path = nullptr) { jetdvfs_connect(this, socket_path); }
    ~client() { jetdvfs_close(this); }
    client(const client &) = delete;
    client &operator=(const client &) = delete;
};

/* A frame, which is reported however its block ends. The block has to wait for the GPU. */
class frame {
  public:
    explicit frame(jetdvfs_client &daemon) : daemon_(daemon) { jetdvfs_frame_begin(&daemon_); }
    ~frame() { jetdvfs_frame_end(&daemon_); }
    frame(const frame &) = delete;
    frame &operator=(const frame &) = delete;

  private:
    jetdvfs_client &daemon_;
};

} /* namespace jetdvfs */
#endif
