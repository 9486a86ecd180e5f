#include "penstock/live/live_server.h"

#include "penstock/live/routes.h"

namespace penstock::live {

LiveServer::LiveServer(const LiveSource& source, const LiveServerOptions& options)
    : server_([&source, host = options.host](
                  const Request& request) { return answer_to(request, source, host); },
              options) {}

}  // namespace penstock::live
