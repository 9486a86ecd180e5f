// For tests: writes images and videos by OpenCV.
//
//   frames_test_media image FILE WIDTH HEIGHT RED GREEN BLUE
//   frames_test_media grey FILE WIDTH HEIGHT VALUE
//   frames_test_media video FILE WIDTH HEIGHT FRAMES FRAMES_PER_SECOND
//
// Frame k of a video has the grey value 10 (k + 1).
#include <cstdlib>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/videoio.hpp>
#include <string>
#include <vector>

namespace {

int number(const char* text) { return std::atoi(text); }

bool write_image(const std::vector<const char*>& given) {
  const cv::Mat image(number(given[2]), number(given[1]), CV_8UC3,
                      cv::Scalar(number(given[5]), number(given[4]), number(given[3])));
  return cv::imwrite(given[0], image);
}

bool write_grey(const std::vector<const char*>& given) {
  return cv::imwrite(given[0],
                     cv::Mat(number(given[2]), number(given[1]), CV_8UC1, number(given[3])));
}

bool write_video(const std::vector<const char*>& given) {
  const cv::Size size(number(given[1]), number(given[2]));
  cv::VideoWriter writer(given[0], cv::CAP_OPENCV_MJPEG,
                         cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), number(given[4]), size);
  if (!writer.isOpened()) return false;
  for (int k = 0; k < number(given[3]); ++k)
    writer.write(cv::Mat(size, CV_8UC3, cv::Scalar::all(10 * (k + 1))));
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string kind = count > 1 ? arguments[1] : "";
  const std::vector<const char*> given(arguments + 2, arguments + count);
  if (kind == "image" && given.size() == 6) return write_image(given) ? 0 : 1;
  if (kind == "grey" && given.size() == 4) return write_grey(given) ? 0 : 1;
  if (kind == "video" && given.size() == 5) return write_video(given) ? 0 : 1;
  return 2;
}
