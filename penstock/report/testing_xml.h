// Reads well-formed XML of the kind the reports write, for their tests: elements in order with
// attributes and text. Anything malformed throws.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::report {

struct XmlElement {
  std::string tag;
  std::map<std::string, std::string> attributes;
  std::string text;  ///< directly inside, entities resolved

  double number(const std::string& name) const {
    return attributes.contains(name) ? std::stod(attributes.at(name)) : 0;
  }
  std::string style() const { return attributes.contains("class") ? attributes.at("class") : ""; }
};

class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}

  std::vector<XmlElement> elements() {
    std::vector<size_t> open;
    while (at_ < text_.size()) {
      if (text_[at_] != '<') {
        const size_t end = std::min(text_.find('<', at_), text_.size());
        if (!open.empty()) elements_[open.back()].text += resolved(text_.substr(at_, end - at_));
        at_ = end;
      } else if (text_.substr(at_).starts_with("</")) {
        const size_t end = text_.find('>', at_);
        if (open.empty() || text_.substr(at_ + 2, end - at_ - 2) != elements_[open.back()].tag)
          fail("closing tag");
        open.pop_back();
        at_ = end + 1;
      } else if (!read_tag()) {
        open.push_back(elements_.size() - 1);
      }
    }
    if (!open.empty()) fail("not closed: " + elements_[open.back()].tag);
    return elements_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at " + std::to_string(at_) + ": " +
                             std::string(text_.substr(at_, 80)));
  }

  // Returns whether the element ends with its tag.
  bool read_tag() {
    XmlElement element;
    ++at_;
    while (at_ < text_.size() && text_[at_] >= 'a' && text_[at_] <= 'z')
      element.tag += text_[at_++];
    if (element.tag.empty()) fail("tag");
    for (;;) {
      while (at_ < text_.size() && text_[at_] == ' ') ++at_;
      if (text_.substr(at_).starts_with("/>")) return finish(element, 2, true);
      if (text_.substr(at_).starts_with(">")) return finish(element, 1, false);
      const size_t equals = text_.find("=\"", at_);
      if (equals == std::string_view::npos) fail("attribute");
      const size_t end = text_.find('"', equals + 2);
      if (end == std::string_view::npos) fail("attribute's end");
      element.attributes[std::string(text_.substr(at_, equals - at_))] =
          resolved(text_.substr(equals + 2, end - equals - 2));
      at_ = end + 1;
    }
  }

  bool finish(const XmlElement& element, size_t length, bool closed) {
    elements_.push_back(element);
    at_ += length;
    return closed;
  }

  std::string resolved(std::string_view raw) const {
    std::string result;
    for (size_t k = 0; k < raw.size(); ++k) {
      const auto byte = static_cast<unsigned char>(raw[k]);
      if (raw[k] == '<' || (byte < 0x20 && raw[k] != '\n')) fail("raw character");
      if (raw[k] != '&') {
        result += raw[k];
        continue;
      }
      static const std::map<std::string_view, char> kEntities = {
          {"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"#39", '\''}};
      const size_t end = raw.find(';', k);
      if (end == std::string_view::npos || !kEntities.contains(raw.substr(k + 1, end - k - 1)))
        fail("entity");
      result += kEntities.at(raw.substr(k + 1, end - k - 1));
      k = end;
    }
    return result;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<XmlElement> elements_;
};

}  // namespace penstock::report
