plait("pictures-d1d1fa55d0683a1d.js",[["[WEBP 12x8 e1cd7d26547060b1]",12,8],["[WEBP 24x24 ff246c142b851309]",24,24],["[WEBP 24x24 c5e43af7b41ef57d]",24,24],["[WEBP 24x24 5e18de6b614c3a0f]",24,24]]);
